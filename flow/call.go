package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// awayDelay is after how long a call is made again that could not be made because NATS is away.
const awayDelay = 2 * time.Second

// errAway: NATS is away, which is no fault of the call, and is not counted.
var errAway = errors.New("NATS is away")

// caller asks services.
type caller struct {
	conn   *nats.Conn
	client *http.Client
}

// ask makes a request once. A finalError is one that no further try can cure; [errAway] counts as no try.
func (c *caller) ask(ctx context.Context, q *dag.Request, trace string) (json.RawMessage, error) {
	own, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	if q.URL != "" {
		return c.http(own, q, trace)
	}
	out, err := c.call(own, q, trace)
	if err != nil && ctx.Err() == nil && !c.conn.IsConnected() {
		return nil, errAway
	}
	return out, err
}

func (c *caller) call(ctx context.Context, q *dag.Request, trace string) (json.RawMessage, error) {
	msg := nats.NewMsg(q.Subject)
	for name, values := range q.Headers {
		msg.Header[name] = values
	}
	msg.Header.Set(subjects.HeaderIdempotencyKey, q.Key)
	if trace != "" {
		msg.Header.Set(subjects.HeaderTraceparent, trace)
	}
	msg.Data = q.Data
	reply, err := c.conn.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no service answers %s", q.Subject)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer from %s within %s", q.Subject, q.Timeout)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, final(fmt.Errorf("the request to %s has %d bytes, and the NATS server takes %d", q.Subject, len(msg.Data), c.conn.MaxPayload()))
	case err != nil:
		return nil, fmt.Errorf("request to %s: %w", q.Subject, err)
	}
	if text := reply.Header.Get(subjects.HeaderServiceError); text != "" || reply.Header.Get(subjects.HeaderServiceErrorCode) != "" {
		return nil, fmt.Errorf("service error %s from %s: %s", reply.Header.Get(subjects.HeaderServiceErrorCode), q.Subject, text)
	}
	if len(bytes.TrimSpace(reply.Data)) == 0 {
		return json.RawMessage("null"), nil
	}
	if err := ident.JSON("the answer", reply.Data, ident.MaxJSON); err != nil {
		return nil, fmt.Errorf("bad answer from %s: %w", q.Subject, err)
	}
	return reply.Data, failure(reply.Data)
}

// failure is the error that a service answers with: {"error": …}.
func failure(reply []byte) error {
	if reply = bytes.TrimSpace(reply); reply[0] != '{' {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(reply, &fields); err != nil {
		return err
	}
	if fields["stream"] != nil && fields["seq"] != nil && len(fields) <= 4 { // with domain and duplicate
		return fmt.Errorf("it is the ack of the stream %s, which stores the calls: no stream may have their subject", fields["stream"])
	}
	if fields["error"] == nil || string(fields["error"]) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(fields["error"], &text) == nil {
		return errors.New(text)
	}
	return errors.New(string(fields["error"]))
}

// http asks a URL. What is no success is an error; of those of the caller (4xx) only a time-out and too many requests may be otherwise next time.
func (c *caller) http(ctx context.Context, q *dag.Request, trace string) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, q.URL, bytes.NewReader(q.Data))
	if err != nil {
		return nil, final(err)
	}
	if len(q.Data) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range q.Headers {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set(subjects.HeaderIdempotencyKey, q.Key)
	if trace != "" {
		req.Header.Set(subjects.HeaderTraceparent, trace)
	}
	resp, err := c.client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer from %s within %s", q.URL, q.Timeout)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, ident.MaxJSON+1))
	if err != nil {
		return nil, fmt.Errorf("the answer from %s: %w", q.URL, err)
	}
	if len(body) > ident.MaxJSON {
		return nil, final(fmt.Errorf("the answer from %s has more than %d bytes", q.URL, ident.MaxJSON))
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		err := fmt.Errorf("%s from %s: %.200q", resp.Status, q.URL, strings.ToValidUTF8(string(body), "\uFFFD"))
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusTooManyRequests {
			err = final(err)
		}
		return nil, err
	}
	return answer(resp.StatusCode, body)
}

// answer is the output of an http step: a body that is no JSON is text.
func answer(status int, body []byte) (json.RawMessage, error) {
	doc := json.RawMessage("null")
	if len(bytes.TrimSpace(body)) > 0 {
		if doc = body; ident.JSON("body", body, ident.MaxJSON) != nil {
			text, err := ident.Encode(strings.ReplaceAll(strings.ToValidUTF8(string(body), "\uFFFD"), "\x00", "\uFFFD"))
			if err != nil {
				return nil, err
			}
			doc = text
		}
	}
	return ident.Encode(struct {
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	}{status, doc})
}

// delay after a try that failed: attempt is 0 after the first.
func delay(p dag.Retry, attempt int) time.Duration {
	d := math.Min(float64(p.Initial)*math.Pow(p.Factor, float64(attempt)), float64(p.Max))
	return max(time.Millisecond, time.Duration(d*(0.8+0.4*rand.Float64())))
}

// finalError is one that no further try can cure.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

func final(err error) error { return &finalError{err} }

func isFinal(err error) bool {
	var f *finalError
	return errors.As(err, &f)
}
