package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// relay stands between Postgres and its clients, and counts how often one of them turns from listening to talking. It costs more than it
// may where times are taken.
type relay struct {
	listener      net.Listener
	network, addr string // of Postgres
	url           string
	trips         atomic.Int64
}

// newRelay listens in a directory that nobody else may enter.
func newRelay(dir, databaseURL string) (*relay, error) {
	cfg, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	r := &relay{}
	r.network, r.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	const port = "5432"
	if r.listener, err = net.Listen("unix", filepath.Join(dir, ".s.PGSQL."+port)); err != nil {
		return nil, fmt.Errorf("count round trips: %w", err)
	}
	if u, err := url.Parse(databaseURL); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		q := u.Query()
		q.Set("host", dir)
		q.Set("port", port)
		u.RawQuery = q.Encode()
		r.url = u.String()
	} else {
		r.url = databaseURL + " host='" + dir + "' port=" + port
	}
	go r.run()
	return r, nil
}

func (r *relay) run() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		go r.carry(client)
	}
}

func (r *relay) carry(client net.Conn) {
	server, err := net.Dial(r.network, r.addr)
	if err != nil {
		_ = client.Close()
		return
	}
	var answered atomic.Bool
	done := make(chan struct{}, 2)
	pass := func(from, to net.Conn, see func()) {
		_, _ = io.Copy(to, &seen{from, see})
		done <- struct{}{}
	}
	go pass(server, client, func() { answered.Store(true) })
	go pass(client, server, func() {
		if answered.Swap(false) {
			r.trips.Add(1)
		}
	})
	<-done
	_ = errors.Join(client.Close(), server.Close())
	<-done
}

// seen tells of everything that is read.
type seen struct {
	net.Conn
	see func()
}

func (s *seen) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.see()
	}
	return n, err
}
