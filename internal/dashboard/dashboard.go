// Package dashboard is the page of the bridge for people who run it. It is files that are served as they are: what they show they ask of the
// HTTP API, with the token that the API takes, so there is nothing here that the API does not say, and no rule about who may see it.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"

	"github.com/klauspost/compress/gzhttp"
)

//go:embed assets
var assets embed.FS

// prefix of what the page loads.
const prefix = "/dashboard/"

// policy lets the page run its own files and ask its own bridge. No markup is made of text anywhere (trusted-types), no form is sent by
// the browser itself, and no other page frames this one.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one that is served.
type file struct {
	body []byte
	mime string
	tag  string
}

// Over serves the dashboard at / and has next answer everything else. The page itself needs no token: without one it shows a login and knows
// nothing.
func Over(next http.Handler) http.Handler {
	files := load()
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1400))
	if err != nil {
		panic(err) // by an option that is wrong
	}
	own := compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { files[r.URL.Path].serve(w, r) }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, ok := files[r.URL.Path]
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		own(w, r)
	})
}

// load reads the files, by their paths as a browser asks for them.
func load() map[string]file {
	files := map[string]file{}
	err := fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		f := file{body: body, mime: mime.TypeByExtension(path.Ext(name)), tag: `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		if path.Ext(name) == ".js" {
			f.mime = "text/javascript; charset=utf-8" // whatever this machine thinks: a browser runs no other as a module
		}
		where := prefix + path.Base(name)
		if path.Base(name) == "index.html" {
			where = "/"
		}
		files[where] = f
		return nil
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return files
}

func (f file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.mime)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // another version of the bridge has other files
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
