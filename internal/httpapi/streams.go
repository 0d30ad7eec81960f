package httpapi

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"time"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/ident"
)

// streams are the calls that are answered with events, one after another.
func (s *Server) streams() {
	stream(s, operation{
		id: "streamInstance", method: http.MethodGet, path: instancePath + "/stream", tag: "instances", scope: auth.Read,
		summary: "Watch an instance: its state now and with each transition, to its end",
	}, "state", s.cfg.API.Watch)
}

// state is what a stream shows: how something is now, and whether it stays so.
type state interface{ Ended() bool }

// stream answers with server-sent events: each state as an event of this name, whose id is a digest of it. Who comes again with the id of
// the state as it is (Last-Event-ID) is told of the next one first, and of none, by 204, where that was the last one: at that a browser
// comes no more. A comment shows now and then that the stream is there.
func stream[Req any, State state](s *Server, o operation, event string, watch func(ctx context.Context, project string, r Req) iter.Seq2[State, error]) {
	o.streams = true
	p := planOf(reflect.TypeFor[Req](), o)
	s.document(o, p, reflect.TypeFor[string]())
	s.mount(o, func(w http.ResponseWriter, r *http.Request, project string) error {
		var req Req
		if err := p.read(r, 0, reflect.ValueOf(&req).Elem()); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.stop, cancel)()
		sights := follow(ctx, watch(ctx, project, req))
		first, ok := <-sights
		if !ok {
			return ctx.Err()
		}
		if first.err != nil {
			return first.err
		}
		out := &eventStream{w: w, control: http.NewResponseController(w), event: event, last: r.Header.Get("Last-Event-ID")}
		if out.seen(first.body) && first.ended {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		if err := out.begin(); err == nil {
			s.pump(ctx, out, first, sights)
		}
		return nil // whoever listened knows by its end
	})
}

// sight is a state as it is sent.
type sight struct {
	body  []byte
	ended bool
	err   error
}

// follow reads states in a goroutine of its own, until they end, or ctx does.
func follow[State state](ctx context.Context, states iter.Seq2[State, error]) <-chan sight {
	sights := make(chan sight)
	go func() {
		defer close(sights)
		for st, err := range states {
			next := sight{err: err}
			if err == nil {
				next.ended = st.Ended()
				next.body, next.err = ident.Encode(st)
			}
			select {
			case sights <- next:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sights
}

// pump sends states until one is the last, or nobody listens.
func (s *Server) pump(ctx context.Context, out *eventStream, next sight, sights <-chan sight) {
	ping := time.NewTicker(s.cfg.Ping)
	defer ping.Stop()
	ok := true
	for {
		if !ok || next.err != nil {
			return
		}
		if err := out.send(next.body); err != nil || next.ended {
			return
		}
	idle:
		for {
			select {
			case next, ok = <-sights:
				break idle
			case <-ping.C:
				if out.write(": ping\n\n") != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// eventStream writes server-sent events.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	event   string
	last    string // id that the other side has seen
}

func (e *eventStream) seen(body []byte) bool { return e.last == digest(body) }

// begin sends the header, so that the other side knows at once that it is listening.
func (e *eventStream) begin() error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies that collect answers
	return e.write("retry: 2000\n\n")
}

func (e *eventStream) send(body []byte) error {
	if e.seen(body) {
		return nil
	}
	e.last = digest(body)
	return e.write(fmt.Sprintf("event: %s\nid: %s\ndata: %s\n\n", e.event, e.last, body))
}

func (e *eventStream) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(transferTimeout)) // a writer that has none needs none
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}

var _ state = api.Instance{}
