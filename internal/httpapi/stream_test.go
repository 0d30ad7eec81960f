package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

// listener reads a stream of events.
type listener struct {
	*testing.T
	*http.Response
	lines *bufio.Scanner
}

func (b *bundle) listen(path, last string) *listener {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 90*time.Second)
	b.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", b.url+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	return &listener{b.T, resp, lines}
}

// next event: its fields, or nil at the end. Comments are fields without a name.
func (l *listener) next() map[string]string {
	fields := map[string]string{}
	for l.lines.Scan() {
		if l.lines.Text() == "" {
			return fields
		}
		name, value, _ := strings.Cut(l.lines.Text(), ": ")
		fields[name] = value
	}
	return nil
}

// until reads states to the one that is so.
func (l *listener) until(so func(in api.Instance) bool) (in api.Instance, id string) {
	l.Helper()
	for fields := l.next(); fields != nil; fields = l.next() {
		if fields["event"] != "state" {
			continue
		}
		in = api.Instance{}
		if err := json.Unmarshal([]byte(fields["data"]), &in); err != nil {
			l.Fatal(err)
		}
		if so(in) {
			return in, fields["id"]
		}
	}
	l.Fatalf("the stream has ended: %v", l.lines.Err())
	return in, ""
}

func is(status engine.Status) func(api.Instance) bool {
	return func(in api.Instance) bool { return in.Status == status }
}

func testStream(b *bundle) {
	b.start("stream")
	b.becomes("key:stream", engine.StatusAwaiting)
	if a := b.call("HEAD", "/v1/instances/key:stream/stream", ""); len(a.body) != 0 || a.StatusCode != http.StatusOK {
		b.Errorf("HEAD: %s, %s", a.Status, a.body)
	}
	l := b.listen("/v1/instances/key:stream/stream", "")
	equal(b, "header", fmt.Sprint(l.StatusCode)+l.Header.Get("Content-Type")+l.Header.Get("Content-Encoding"), "200text/event-stream")
	_, id := l.until(is(engine.StatusAwaiting))
	again := b.listen("/v1/instances/key:stream/stream", id) // who has seen this state is told of the next
	b.ask(http.StatusOK, "POST", "/v1/instances/key:stream/pause", "", nil)
	in, _ := again.until(func(api.Instance) bool { return true })
	equal(b, "paused", in.Paused, true)
	b.ask(http.StatusOK, "POST", "/v1/instances/key:stream/resume", "", nil)
	b.ask(http.StatusOK, "POST", "/v1/signals", `[{"correlation_key": "stream", "name": "item"}, {"correlation_key": "stream", "name": "payment", "payload": {"amount": 1}}]`, nil)
	for _, listening := range []*listener{l, again} {
		in, id = listening.until(is(engine.StatusDone))
		if fields := listening.next(); fields != nil {
			b.Errorf("after the end: %v", fields)
		}
		equal(b, "end", fmt.Sprint(listening.lines.Err()), "<nil>")
	}
	// A browser comes again after the end, and is told to stay away; others are told the end.
	equal(b, "seen", b.listen("/v1/instances/"+in.ID+"/stream", id).StatusCode, http.StatusNoContent)
	b.listen("/v1/instances/"+in.ID+"/stream", "other").until(is(engine.StatusDone))
}

// What stops ends its streams, and answers who waits.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	in := s.instance(t)
	b := &bundle{T: t, url: s.url}
	l := b.listen("/v1/instances/"+in+"/stream", "")
	l.until(func(api.Instance) bool { return true })
	for fields := l.next(); fields[""] != "ping"; fields = l.next() { // it is told that the stream is there
		if fields == nil {
			t.Fatal("the stream has ended")
		}
	}
	waited := make(chan answer)
	go func() { waited <- b.call("GET", "/v1/instances/"+in+"?wait=60s", "") }()
	for s.server.Waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	s.stop()
	if _, err := io.ReadAll(l.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	equal(t, "wait", (<-waited).StatusCode, http.StatusOK)
	if err := <-s.stopped; err != nil {
		t.Error(err)
	}
	a := b.call("GET", "/v1/instances/"+in, "")
	a.refused(b, api.CodeUnavailable)
	equal(t, "retry", a.Header.Get("Retry-After"), "1")
}
