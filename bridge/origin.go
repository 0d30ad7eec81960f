package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// originTTL is how long the creation time of an upstream is believed. A shorter time costs requests, a longer one widens the gap in
// which the messages of an upstream that was made again are taken for the old one's.
const originTTL = 10 * time.Second

// origins finds out where in JetStream a message stood first, so that the same message read from a stream and from a copy of it is
// one message. It remembers when upstream streams were created.
type origins struct {
	js jetstream.JetStream

	mu    sync.Mutex
	known map[string]upstream
}

type upstream struct {
	created time.Time // zero: not to be seen from here
	asked   time.Time
}

func newOrigins(js jetstream.JetStream) *origins {
	return &origins{js: js, known: map[string]upstream{}}
}

// of returns the origin of a message. A copy whose upstream cannot be seen from here (another account or domain, deleted), or was
// made again after the copy was taken, counts as its own stream's: that is always unique, where a guess could make two messages one.
func (o *origins) of(ctx context.Context, m *message) (engine.Origin, error) {
	own := engine.Origin{Stream: m.stream, Created: m.created, Sequence: m.sequence}
	stream, sequence := m.copiedFrom()
	// The name of a stream of another account carries a hash; its creation time is not to be had.
	if stream == m.stream || strings.Contains(stream, ":") {
		return own, nil
	}
	created, err := o.created(ctx, stream)
	if err != nil {
		return engine.Origin{}, fmt.Errorf("stream %s: %w", stream, err)
	}
	if created.IsZero() || created.After(m.stored) {
		return own, nil
	}
	return engine.Origin{Stream: stream, Created: created, Sequence: sequence}, nil
}

// created is when a stream was created; zero when there is none of that name.
func (o *origins) created(ctx context.Context, stream string) (time.Time, error) {
	o.mu.Lock()
	up, ok := o.known[stream]
	o.mu.Unlock()
	if ok && time.Since(up.asked) < originTTL {
		return up.created, nil
	}
	s, err := o.js.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		up = upstream{}
	case err != nil:
		return time.Time{}, err
	default:
		up = upstream{created: s.CachedInfo().Created}
	}
	up.asked = time.Now()
	o.mu.Lock()
	o.known[stream] = up
	o.mu.Unlock()
	return up.created, nil
}

// copiedFrom names the stream and sequence that a message was sourced or mirrored from (the direct upstream), else its own. The
// server's header is "<stream>[:<hash of the account>] <sequence> <filter> <transform> <subject> [<identity of the stream>]".
func (m *message) copiedFrom() (stream string, sequence uint64) {
	if fields := strings.Fields(m.headers.Get(subjects.HeaderStreamSource)); len(fields) >= 2 {
		if seq, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			return fields[0], seq
		}
	}
	if m.mirrors != "" {
		return m.mirrors, m.sequence // a mirror keeps the sequences and adds no header
	}
	return m.stream, m.sequence
}
