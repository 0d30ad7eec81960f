package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// setting of a link.
type setting struct {
	Listen  string `json:"listen"` // of a new link
	To      string `json:"to"`     // of a new link
	Cut     bool   `json:"cut"`
	Refuse  bool   `json:"refuse"`
	DelayMS int    `json:"delay_ms"`
}

type table struct {
	mu    sync.Mutex
	links map[string]*link
}

func (t *table) set(name string, s setting) (addr string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[name]
	if l == nil {
		if l, err = newLink(s); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		t.links[name] = l
	}
	l.set(s)
	return l.listener.Addr().String(), nil
}

// link is a way from one member to another, in one direction of connecting.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	now   setting
	whole chan struct{} // closed while the link is not cut
	conns map[net.Conn]struct{}
}

func newLink(s setting) (*link, error) {
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, to: s.To, whole: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(l.whole)
	go l.accept()
	return l, nil
}

func (l *link) set(s setting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.Cut && !l.now.Cut:
		l.whole = make(chan struct{})
	case !s.Cut && l.now.Cut:
		close(l.whole)
	}
	l.now = s
	if s.Refuse {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

// pass returns when what is sent now may go on.
func (l *link) pass() {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	<-whole
}

func (l *link) delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.now.DelayMS) * time.Millisecond
}

// add says whether the link takes the connection, which it then closes when it is told to refuse.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.Refuse {
		_ = c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) drop(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil { // too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go l.join(c)
	}
}

const dialTimeout = 10 * time.Second

func (l *link) join(near net.Conn) {
	defer l.drop(near)
	if !l.add(near) {
		return
	}
	l.pass()
	far, err := net.DialTimeout("tcp", l.to, dialTimeout)
	if err != nil {
		reset(near)
		return
	}
	defer l.drop(far)
	if !l.add(far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(far, near) })
	both.Go(func() { l.carry(near, far) })
	both.Wait()
}

// chunk is what was read at once, and when it is due at the other end.
type chunk struct {
	data []byte
	due  time.Time
}

const (
	chunkSize = 32 << 10
	inFlight  = 64 // chunks of one direction of a connection
)

// carry takes what one end says to the other, later if the link is slow, and its end. What is under way when the link is cut arrives when
// it is whole again.
func (l *link) carry(to, from net.Conn) {
	chunks := make(chan chunk, inFlight)
	var end error // read it when chunks is closed
	go func() {
		defer close(chunks)
		for {
			buffer := make([]byte, chunkSize)
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- chunk{buffer[:n], time.Now().Add(l.delay())}
			}
			if err != nil {
				end = err
				return
			}
		}
	}()
	broken := false // then the rest is read, so that the reader ends
	for c := range chunks {
		if broken {
			continue
		}
		if wait := time.Until(c.due); wait > 0 {
			time.Sleep(wait)
		}
		l.pass()
		if _, err := to.Write(c.data); err != nil {
			broken = true
			_ = from.Close()
		}
	}
	l.pass()
	if errors.Is(end, io.EOF) && !broken {
		_ = to.(*net.TCPConn).CloseWrite() // the other direction may have more to say
		return
	}
	reset(to)
}

// reset closes a connection as a server does that is not there.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
