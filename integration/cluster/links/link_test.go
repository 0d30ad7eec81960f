package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// pair is a link, and the connections at its two ends.
type pair struct {
	*testing.T
	link      *link
	near, far *net.TCPConn
	server    net.Listener
}

func newPair(t *testing.T) *pair {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLink(setting{Listen: "127.0.0.1:0", To: server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(); l.set(setting{Refuse: true}) })
	p := &pair{T: t, link: l, server: server}
	p.near = p.dial()
	p.far = p.accept()
	return p
}

func (p *pair) dial() *net.TCPConn {
	p.Helper()
	c, err := net.Dial("tcp", p.link.listener.Addr().String())
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func (p *pair) accept() *net.TCPConn {
	p.Helper()
	c, err := p.server.Accept()
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func (p *pair) say(c net.Conn, text string) {
	p.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		p.Fatal(err)
	}
}

func (p *pair) hear(c net.Conn, want string) {
	p.Helper()
	got := make([]byte, len(want))
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		p.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// silent looks for a moment: what should not come cannot be waited for.
func (p *pair) silent(c net.Conn) {
	p.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.Fatalf("heard %d bytes, %v; want silence", n, err)
	}
}

func TestCutIsSilentAndLosesNothing(t *testing.T) {
	p := newPair(t)
	p.say(p.near, "before")
	p.hear(p.far, "before")
	p.link.set(setting{Cut: true})
	p.say(p.near, "there")
	p.say(p.far, "back")
	p.silent(p.far)
	p.silent(p.near)
	p.link.set(setting{})
	p.hear(p.far, "there")
	p.hear(p.near, "back")
}

// TestCutHidesTheEnd: a server keeps the session of a client that has given up, until the link is whole.
func TestCutHidesTheEnd(t *testing.T) {
	p := newPair(t)
	p.link.set(setting{Cut: true})
	_ = p.near.Close()
	p.silent(p.far)
	p.link.set(setting{})
	_ = p.far.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := p.far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

func TestCutConnectsLater(t *testing.T) {
	p := newPair(t)
	p.link.set(setting{Cut: true})
	second := p.dial()
	p.say(second, "hello")
	p.silent(second)
	p.link.set(setting{})
	p.hear(p.accept(), "hello")
}

func TestHalfOfAConnectionMayEnd(t *testing.T) {
	p := newPair(t)
	p.say(p.near, "ask")
	if err := p.near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.hear(p.far, "ask")
	p.say(p.far, "answer")
	p.hear(p.near, "answer")
}

func TestRefuse(t *testing.T) {
	p := newPair(t)
	p.link.set(setting{Refuse: true})
	for _, c := range []net.Conn{p.near, p.far, p.dial()} {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v, want the connection closed", err)
		}
	}
	p.link.set(setting{})
	p.say(p.dial(), "again")
	p.hear(p.accept(), "again")
}

func TestSlow(t *testing.T) {
	p := newPair(t)
	const delay = 150 * time.Millisecond
	p.link.set(setting{DelayMS: int(delay.Milliseconds())})
	began := time.Now()
	p.say(p.near, "there")
	p.hear(p.far, "there")
	p.say(p.far, "back")
	p.hear(p.near, "back")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %s, want %s at least", took, 2*delay)
	}
}
