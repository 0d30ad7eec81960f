// Command links stands between the members of a test cluster: it passes connections on, and can cut, slow or refuse each link of two members.
//
// A link that is cut is silent, as a broken network is. Nothing that is sent arrives, the end of a connection neither, so a server keeps
// the session of a client that has long given up; what was sent before the link is back arrives then, as TCP would send it again.
// Proxies that drop data pass the end of a connection on, and have to close at least what lost some of it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	api := flag.String("api", "127.0.0.1:0", "where links are told what to do")
	flag.Parse()
	if err := serve(*api); err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}
}

// serve takes links on PUT /links/{name}: a new one, or another state of one that is there. The answer is where the link listens. GET / says that it serves.
func serve(api string) error {
	listener, err := net.Listen("tcp", api)
	if err != nil {
		return err
	}
	fmt.Println("listening", listener.Addr())
	all := &table{links: map[string]*link{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("PUT /links/{name}", func(w http.ResponseWriter, r *http.Request) {
		var want setting
		if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		addr, err := all.set(r.PathValue("name"), want)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"addr": addr})
	})
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(listener)
}
