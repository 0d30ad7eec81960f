package engine_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// proxy stands between a pool and its database, and can be cut.
type proxy struct {
	URL    string
	listen net.Listener
	target [2]string // network, address
	wg     sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newProxy(t testing.TB, dbURL string) *proxy {
	t.Helper()
	cfg := must(pgxpool.ParseConfig(dbURL))(t).ConnConfig
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p := &proxy{listen: must(net.Listen("tcp", "127.0.0.1:0"))(t), target: [2]string{network, address}, conns: map[net.Conn]struct{}{}}
	u := &url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: p.listen.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	p.URL = u.String()
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = p.listen.Close()
		p.Cut(true)
		p.wg.Wait()
	})
	return p
}

// Cut closes all connections and refuses new ones, until it is mended.
func (p *proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

func (p *proxy) serve() {
	for {
		c, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.join(c) })
	}
}

// add takes a connection up, unless there may be none now.
func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) join(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial(p.target[0], p.target[1])
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.add(client) || !p.add(server) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}
