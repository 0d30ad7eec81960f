package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
)

const (
	maxResponse  = 64 << 10        // bytes that are read of an answer's body, so that its connection can be used again
	responseTime = 2 * time.Second // for them
	maxSnippet   = 1 << 10         // bytes of it that are kept
	maxHeaders   = 64 << 10

	firstDelay = 5 * time.Second // five times as long after each failure,
	lastDelay  = 30 * time.Minute
)

// newClient dials no address that is not of the public internet, whatever its name was a moment ago: the dialer asks of the address that
// it is about to connect to. There is no proxy, which would dial by itself.
func newClient(guard *ssrf.Guardian, names *net.Resolver) *http.Client {
	dialer := &net.Dialer{KeepAlive: 30 * time.Second, Resolver: names}
	if guard != nil {
		dialer.Control = guard.Safe
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
			MaxIdleConns: window, MaxIdleConnsPerHost: perHost, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is what came of an attempt.
type answer struct {
	status     int // 0: none
	response   string
	location   string
	retryAfter time.Duration
	err        error // of an attempt without an answer
}

// attempt sends one webhook. The time-out is over the whole; a body that comes slowly is left where it is.
func (s *Sender) attempt(work context.Context, d engine.ClaimedDelivery) answer {
	if err := ident.URL("url", d.URL); err != nil {
		return answer{err: &refusedError{err}}
	}
	ctx, cancel := context.WithTimeoutCause(work, s.cfg.Timeout, errTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return answer{err: &refusedError{err}}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.cfg.UserAgent)
	if err := s.signer.sign(req.Header, d.ID.String(), time.Now(), d.Body); err != nil {
		return answer{err: err}
	}
	resp, err := s.client.Do(req)
	switch {
	case err != nil && work.Err() != nil:
		return answer{err: errCutOff}
	case errors.Is(err, ssrf.ErrProhibitedIP):
		return answer{err: errPrivate}
	case err != nil && context.Cause(ctx) == errTimeout:
		return answer{err: fmt.Errorf("no answer within %s", s.cfg.Timeout)}
	case err != nil:
		return answer{err: unwrapURL(err)}
	}
	defer resp.Body.Close()
	enough := time.AfterFunc(responseTime, cancel)
	defer enough.Stop()
	var body []byte
	if resp.StatusCode >= 200 { // else it is no answer but the connection
		body, _ = io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // as far as it came: the status has said it all
	}
	return answer{
		status: resp.StatusCode, response: snippet(body), location: resp.Header.Get("Location"), retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
}

// snippet is the beginning of a text, as valid UTF-8.
func snippet(body []byte) string {
	if len(body) > maxSnippet {
		body = body[:maxSnippet]
		for n := 0; n < 3 && len(body) > 0 && body[len(body)-1] >= 0x80; n++ { // not in the middle of a character
			if body[len(body)-1] >= 0xc0 {
				body = body[:len(body)-1]
				break
			}
			body = body[:len(body)-1]
		}
	}
	return strings.ToValidUTF8(strings.ReplaceAll(string(body), "\x00", "\uFFFD"), "\uFFFD")
}

// retryAfter reads the header: seconds, or a time. What it cannot read is 0.
func retryAfter(h string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(h, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(h); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// unwrapURL leaves out what [url.Error] says of every request: method and URL.
func unwrapURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

var (
	errTimeout = errors.New("time-out")
	errCutOff  = errors.New("the sender was stopped before there was an answer")
)

func isCutOff(err error) bool { return errors.Is(err, errCutOff) }

// refusedError is of a webhook that this sender does not send.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// errPrivate does not say which address it is: whoever may start instances need not know what names mean in here.
var errPrivate = &refusedError{errors.New("the address is not of the public internet, and webhooks.allow_private is not set")}

// result is what came of an attempt, on its way to the loop.
type result struct {
	delivery engine.ClaimedDelivery
	host     *host
	answered func(error)
	answer   answer
}

// verdict on an attempt: whether the webhook is delivered, or may be sent again; why it is not delivered; and what that says of the host.
func (a answer) verdict() (delivered, again bool, reason string, host error) {
	var refused *refusedError
	switch status := a.status; {
	case errors.As(a.err, &refused):
		return false, false, a.err.Error(), nil
	case a.err != nil:
		return false, true, a.err.Error(), a.err
	case status >= 200 && status <= 299:
		return true, false, "", nil
	case status >= 300 && status <= 399:
		reason = fmt.Sprintf("HTTP status %d, and redirects are not followed: send to where the receiver is", status)
		if a.location != "" {
			reason += ", " + a.location
		}
		return false, false, reason, nil
	case status == http.StatusTooManyRequests:
		reason = "HTTP status 429: the receiver has too many requests"
		return false, true, reason, errors.New(reason)
	case status >= 400 && status <= 499:
		return false, false, fmt.Sprintf("HTTP status %d: the receiver refuses it", status), nil
	default:
		reason = fmt.Sprintf("HTTP status %d", status)
		return false, true, reason, errors.New(reason)
	}
}

// settle what came of an attempt: it is to be recorded.
func (s *Sender) settle(r result) {
	s.sending--
	r.host.sending--
	d, a := r.delivery, r.answer
	row := engine.DeliveryResult{ID: d.ID, Claim: d.Claim, LastStatus: a.status, Response: a.response}
	delivered, again, reason, bad := a.verdict()
	row.LastError = reason
	count := resultFailed
	switch {
	case isCutOff(a.err):
		row.Status, row.Uncounted, count = engine.DeliveryPending, true, ""
	case delivered:
		row.Status, count = engine.DeliveryDelivered, resultDelivered
	case again && d.Attempts+1 < MaxAttempts:
		row.Status, count = engine.DeliveryPending, resultRetried
		row.Delay = delay(d.Attempts+1, a.retryAfter)
	default:
		row.Status = engine.DeliveryFailed
	}
	if count != "" {
		s.metrics.deliveries.WithLabelValues(count).Inc()
	}
	s.log.Debug("webhook attempt", "id", d.ID, "host", d.Host, "attempt", d.Attempts+1, "status", row.Status, "http_status", a.status, "error", reason)
	s.done = append(s.done, row)
	s.heard(r.host, r.answered, bad)
}

// delay after so many attempts: 5 s, 25 s, 125 s, 625 s, up to a tenth longer so that many do not come back together; what the receiver
// asks for where that is longer; at most half an hour.
func delay(attempts int, asked time.Duration) time.Duration {
	d := firstDelay
	for range attempts - 1 {
		d = min(5*d, lastDelay)
	}
	d += rand.N(d/10 + 1)
	return min(max(d, asked), lastDelay)
}
