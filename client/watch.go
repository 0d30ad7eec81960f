package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Watch yields an instance as it is, then each time that it is seen to have changed, and ends with its end, or with an error. A stream that
// breaks is begun again, and a state that was yielded is not yielded again.
func (c *Client) Watch(ctx context.Context, ref Ref) iter.Seq2[Instance, error] {
	path := func(ref string) []string { return []string{"v1", "instances", ref, "stream"} }
	return follow(ctx, c, path(ref.text), func(in Instance) []string { return path(in.ID) }) // another may have the key by then
}

// follow yields the states of streams that are begun again where they break; next is the path of the stream after a state.
func follow[T interface{ Ended() bool }](ctx context.Context, c *Client, path []string, next func(T) []string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		w := &watch[T]{client: c, path: path, next: next, yield: yield}
		pause := backoff.NewExponentialBackOff()
		pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
		for !w.over {
			before := w.last
			err := w.turn(ctx)
			if w.over {
				return
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil && (ctx.Err() != nil || !transient(err)) {
				yield(*new(T), fmt.Errorf("watch: %w", err))
				return
			}
			if w.last != before {
				pause.Reset()
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause.NextBackOff()):
			}
		}
	}
}

// watch is one that goes on over several streams.
type watch[T interface{ Ended() bool }] struct {
	client *Client
	path   []string
	next   func(T) []string
	yield  func(T, error) bool
	last   string // id of the state that was yielded last
	over   bool
}

// turn reads one stream to its end.
func (w *watch[T]) turn(ctx context.Context) error {
	resp, err := w.client.stream(ctx, call{method: http.MethodGet, path: w.path}, w.last)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent { // the last state was the end
		w.over = true
		return nil
	}
	lines := bufio.NewReader(resp.Body)
	var id, data string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = value
		case line == "" && data != "":
			if err := w.state(id, data); err != nil || w.over {
				return err
			}
			data = ""
		}
	}
}

func (w *watch[T]) state(id, data string) error {
	var state T
	if err := json.Unmarshal([]byte(data), &state); err != nil {
		return permanent(fmt.Errorf("a state cannot be read: %w", err))
	}
	w.last, w.path = id, w.next(state)
	w.over = !w.yield(state, nil) || state.Ended()
	return nil
}

// stream begins to read events.
func (c *Client) stream(ctx context.Context, r call, last string) (*http.Response, error) {
	r.last = last
	resp, err := c.send(ctx, r, nil)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return nil, refusal(resp, text)
}
