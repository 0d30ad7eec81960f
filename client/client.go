package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/ident"
)

// Config of a [Client]. Only URL is required.
type Config struct {
	URL      string        // of a bridge, as http://127.0.0.1:8080
	Token    string        // an API key, or the admin token
	Project  string        // with the admin token; "": the server's default one. An API key has its own
	HTTP     *http.Client  // zero: http.DefaultClient. It should set no time-out of its own: waits and streams last
	RetryFor time.Duration // how long a request is sent again where that does no harm; zero: 30s, negative: it is not
}

// Client asks a bridge. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base string
}

// New checks the configuration, and talks to nobody.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("client: %.100q is no URL of a bridge: want http://host:port", cfg.URL)
	}
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	if cfg.RetryFor == 0 {
		cfg.RetryFor = 30 * time.Second
	}
	return &Client{cfg: cfg, base: strings.TrimSuffix(u.String(), "/")}, nil
}

// call is a request.
type call struct {
	method string
	path   []string // segments, as they are before they are encoded
	query  url.Values
	body   any    // nil: none
	key    string // Idempotency-Key
	last   string // Last-Event-ID
	again  bool   // a second one does no harm

	alsoAnswer int // a status that is none of success, and no error
}

// do sends a request, again where that does no harm, and reads its answer into answer, if that is not nil.
func (c *Client) do(ctx context.Context, r call, answer any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = ident.Encode(r.body); err != nil {
			return err
		}
	}
	attempt := func() (struct{}, error) {
		err := c.once(ctx, r, body, answer)
		if err == nil || !r.again || ctx.Err() != nil || !transient(err) {
			return struct{}{}, permanent(err)
		}
		return struct{}{}, err
	}
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 5*time.Second
	_, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(max(c.cfg.RetryFor, 1)))
	return err
}

func permanent(err error) error {
	if err == nil {
		return nil
	}
	return backoff.Permanent(err)
}

// transient errors are those of the network, and a server that says to come again.
func transient(err error) bool {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Code == CodeUnavailable
	}
	var final *backoff.PermanentError
	return !errors.As(err, &final)
}

func (c *Client) once(ctx context.Context, r call, body []byte, answer any) error {
	resp, err := c.send(ctx, r, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", r.method, strings.Join(r.path, "/"), err)
	case resp.StatusCode >= 300 && resp.StatusCode != r.alsoAnswer:
		return refusal(resp, text)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return permanent(fmt.Errorf("%s %s: the answer cannot be read: %w", r.method, strings.Join(r.path, "/"), err))
	}
	return nil
}

func (c *Client) send(ctx context.Context, r call, body []byte) (*http.Response, error) {
	query := url.Values{}
	for name, values := range r.query {
		query[name] = values
	}
	if c.cfg.Project != "" {
		query.Set("project", c.cfg.Project)
	}
	var path strings.Builder
	for _, segment := range r.path {
		path.WriteString("/" + escape(segment))
	}
	target := c.base + path.String()
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, permanent(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.last != "" {
		req.Header.Set("Last-Event-ID", r.last)
	}
	return c.cfg.HTTP.Do(req)
}

// escape a segment of a path; dots alone would be taken for places in a tree.
func escape(segment string) string {
	if strings.Trim(segment, ".") == "" {
		return strings.ReplaceAll(segment, ".", "%2E")
	}
	return url.PathEscape(segment)
}

// refusal is the error of an answer that is one.
func refusal(resp *http.Response, text []byte) error {
	var b api.ErrorBody
	if err := json.Unmarshal(text, &b); err == nil && b.Error != nil {
		return b.Error
	}
	err := fmt.Errorf("%s %s: %s: %.200q is no answer of pointsman", resp.Request.Method, resp.Request.URL.Path, resp.Status, text)
	if resp.StatusCode < 500 {
		return permanent(err)
	}
	return err
}

// Start starts an instance. Without a DedupKey it is given one, so that it is started once however often the request is sent. The code of
// the error is conflict where a live instance holds its key: details.instance_id names it.
func (c *Client) Start(ctx context.Context, n NewInstance) (in Instance, err error) {
	key := n.DedupKey
	if key == "" {
		key = uuid.NewString()
	}
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "instances"}, body: n, key: key, again: true}, &in)
	return in, err
}

// StartAll starts up to 1000 instances, and says what became of each; atomic: all of up to 200, or none.
func (c *Client) StartAll(ctx context.Context, ns []NewInstance, atomic bool) ([]Item, error) {
	again := true
	for _, n := range ns {
		again = again && n.DedupKey != ""
	}
	return c.array(ctx, "instances", ns, atomic, again)
}

// Signal puts a signal into the inbox of a live instance. payload is what can be written as JSON. A second signal with the same
// dedupKey is a duplicate; without one it is given one, so that it is there once however often the request is sent. The code of the error is
// no_target where no live instance is meant.
func (c *Client) Signal(ctx context.Context, to Ref, name string, payload any, dedupKey string) (done Signaled, err error) {
	if dedupKey == "" {
		dedupKey = uuid.NewString()
	}
	text, err := ident.Encode(payload)
	if err != nil {
		return done, err
	}
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "instances", to.text, "signals", name}, body: json.RawMessage(text), key: dedupKey, again: true}, &done)
	return done, err
}

// SignalAll sends up to 1000 signals, and says what became of each; atomic: all of up to 200, or none.
func (c *Client) SignalAll(ctx context.Context, signals []NewSignal, atomic bool) ([]Item, error) {
	again := true
	for _, s := range signals {
		again = again && s.DedupKey != ""
	}
	return c.array(ctx, "signals", signals, atomic, again)
}

func (c *Client) array(ctx context.Context, path string, items any, atomic, again bool) ([]Item, error) {
	var out api.Results
	query := url.Values{}
	if atomic {
		query.Set("atomic", "true")
	}
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", path}, query: query, body: items, again: again}, &out)
	return out.Results, err
}

// Get returns an instance as it is.
func (c *Client) Get(ctx context.Context, ref Ref) (in Instance, err error) {
	err = c.read(ctx, ref, nil, &in)
	return in, err
}

// waitTurn is how long one request of a wait lasts at most: proxies cut longer ones off.
const waitTurn = 30 * time.Second

// Wait returns an instance when it has ended. The error is that of ctx where that comes first.
func (c *Client) Wait(ctx context.Context, ref Ref) (in Instance, err error) {
	for {
		in = Instance{}
		if err = c.read(ctx, ref, url.Values{"wait": {waitTurn.String()}}, &in); err != nil || in.Ended() {
			return in, err
		}
		id, err := uuid.Parse(in.ID) // another may have the key by then
		if err != nil {
			return in, err
		}
		ref = ByID(id)
		if err := ctx.Err(); err != nil {
			return in, err
		}
	}
}

// List returns a page of the instances, the newest first. A page may be short, even empty, and have a NextCursor, which the next Filter takes.
func (c *Client) List(ctx context.Context, f Filter) (page InstancePage, err error) {
	query := parameters(f.Limit, "machine", f.Machine, "status", string(f.Status), "queue", f.Queue, "correlation_key", f.CorrelationKey,
		"correlation_prefix", f.CorrelationPrefix, "cursor", f.Cursor)
	err = c.get(ctx, query, &page, "instances")
	return page, err
}

// Inbox returns a page of the signals that wait, in the order of arrival; cursor is "" for the first.
func (c *Client) Inbox(ctx context.Context, ref Ref, cursor string) (page SignalPage, err error) {
	err = c.read(ctx, ref, url.Values{"cursor": {cursor}}, &page, "inbox")
	return page, err
}

// History returns a page of the latest transitions, the latest first; cursor is "" for the first.
func (c *Client) History(ctx context.Context, ref Ref, cursor string) (page TransitionPage, err error) {
	err = c.read(ctx, ref, url.Values{"cursor": {cursor}}, &page, "history")
	return page, err
}

// Children returns a page of the instances that an instance has started as its children, the ended ones too, in the order of their starts;
// cursor is "" for the first.
func (c *Client) Children(ctx context.Context, ref Ref, cursor string) (page InstancePage, err error) {
	err = c.read(ctx, ref, url.Values{"cursor": {cursor}}, &page, "children")
	return page, err
}

// Events returns all values that an instance has published.
func (c *Client) Events(ctx context.Context, ref Ref) (values map[string]json.RawMessage, err error) {
	err = c.read(ctx, ref, nil, &values, "events")
	return values, err
}

// Event reads a value that an instance has published into value. The code of the error is not_found where it has not, or there is no such
// instance.
func (c *Client) Event(ctx context.Context, ref Ref, key string, value any) error {
	return c.read(ctx, ref, nil, value, "events", key)
}

// Cancel ends an instance; one that has ended stays as it ended. Its children go on.
func (c *Client) Cancel(ctx context.Context, ref Ref, reason string) (Instance, error) {
	return c.cancel(ctx, ref, parameters(0, "reason", reason))
}

// CancelAll ends an instance and all that is live below it: its children, and theirs. Where there are more than can be ended in the time of
// one request, the next one goes on.
func (c *Client) CancelAll(ctx context.Context, ref Ref, reason string) (Instance, error) {
	return c.cancel(ctx, ref, parameters(0, "reason", reason, "children", "true"))
}

func (c *Client) cancel(ctx context.Context, ref Ref, query url.Values) (in Instance, err error) {
	err = c.do(ctx, call{method: http.MethodDelete, path: []string{"v1", "instances", ref.text}, query: query, again: true}, &in)
	return in, err
}

// Retry runs the step of a failed or canceled instance again. It is sent once: a second one would find that the instance is live.
func (c *Client) Retry(ctx context.Context, ref Ref) (Instance, error) {
	return c.operate(ctx, ref, "retry", false)
}

// Pause keeps an instance from running, while its inbox fills.
func (c *Client) Pause(ctx context.Context, ref Ref) (Instance, error) {
	return c.operate(ctx, ref, "pause", true)
}

// Resume lets a paused instance run again.
func (c *Client) Resume(ctx context.Context, ref Ref) (Instance, error) {
	return c.operate(ctx, ref, "resume", true)
}

func (c *Client) operate(ctx context.Context, ref Ref, verb string, again bool) (in Instance, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "instances", ref.text, verb}, again: again}, &in)
	return in, err
}

// read asks about an instance.
func (c *Client) read(ctx context.Context, ref Ref, query url.Values, answer any, path ...string) error {
	return c.get(ctx, query, answer, append([]string{"instances", ref.text}, path...)...)
}

func (c *Client) get(ctx context.Context, query url.Values, answer any, path ...string) error {
	return c.do(ctx, call{method: http.MethodGet, path: append([]string{"v1"}, path...), query: query, again: true}, answer)
}

// parameters are a limit, and pairs of name and value; those without a value are left out.
func parameters(limit int, pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return query
}

// number as a parameter; 0 is none.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
