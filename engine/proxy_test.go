package engine_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
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
	lose  string
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

// Lose has nothing come back any more on a connection that has carried this text to the server; "": from now on on none.
func (p *proxy) Lose(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = text
}

// wayBack is the way from the server, which is closed to what comes after the text.
type wayBack struct {
	io.Writer
	p    *proxy
	tail []byte
	lost atomic.Bool
}

// sees what goes to the server, before it goes there.
func (w *wayBack) sees(b []byte) {
	w.p.mu.Lock()
	text := w.p.lose
	w.p.mu.Unlock()
	if w.tail = append(w.tail, b...); text != "" && bytes.Contains(w.tail, []byte(text)) {
		w.lost.Store(true)
	}
	w.tail = slices.Clone(w.tail[max(0, len(w.tail)-len(text)):])
}

func (w *wayBack) Write(b []byte) (int, error) {
	if w.lost.Load() {
		return len(b), nil
	}
	return w.Writer.Write(b)
}

// seeing has w see what is written.
type seeing struct {
	io.Writer
	w *wayBack
}

func (s seeing) Write(b []byte) (int, error) {
	s.w.sees(b)
	return s.Writer.Write(b)
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
	done, back := make(chan struct{}), &wayBack{Writer: client, p: p}
	go func() {
		defer close(done)
		_, _ = io.Copy(seeing{server, back}, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(back, server)
	_ = client.Close()
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}
