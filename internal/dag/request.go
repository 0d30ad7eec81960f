package dag

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// Request is what a call or an http step asks, complete: whoever makes it needs nothing else.
type Request struct {
	Ref     string              `json:"ref"`
	Key     string              `json:"idempotency_key"`
	Subject string              `json:"subject,omitempty"` // of a call
	Method  string              `json:"method,omitempty"`  // of http
	URL     string              `json:"url,omitempty"`
	Headers map[string][]string `json:"headers,omitempty"`
	Data    json.RawMessage     `json:"data,omitempty"` // nil: of http, no body
	Timeout time.Duration       `json:"timeout"`
	Retry   Retry               `json:"retry"`
}

// Request of a task that calls, from what its step depends on: it is the same each time.
func (r *Run) Request(t Task) (*Request, error) {
	s := r.Body(t)
	in, err := r.inputOf(t)
	if err != nil {
		return nil, err
	}
	d := rendering{in: in}
	q := &Request{Ref: t.String(), Key: r.Key(t), Headers: d.headers(s.Headers), Timeout: s.Timeout, Retry: s.Retry}
	if s.Type == HTTP {
		q.Method, q.URL = s.Method, d.key("url", s.URL, ident.URL)
		if d.err == nil {
			d.check(sameHost(s.URL.Source(), q.URL))
		}
	} else {
		q.Subject = d.text("subject", s.Subject)
		if d.err == nil {
			d.check(checkSubject("subject", q.Subject))
		}
	}
	if s.Data != nil {
		name := "data"
		if s.Type == HTTP {
			name = "body"
		}
		q.Data = d.value(name, s.Data)
	}
	return q, d.err
}

func checkSubject(field, s string) error {
	if err := subjects.ValidSubject(s); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

func checkID(field, s string) error {
	if id, err := uuid.Parse(s); err != nil || len(s) != 36 || id == uuid.Nil {
		return &ident.Error{Field: field, Reason: fmt.Sprintf("is %.40q, want the id of an instance", s)}
	}
	return nil
}

// CheckURL wants the host of a URL in plain text: what a payload says must not decide whom a worker asks.
func CheckURL(template string) string {
	rest, ok := strings.CutPrefix(template, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(template, "http://")
	}
	host, _, path := strings.Cut(rest, "/")
	switch {
	case !ok:
		return "want a URL that begins with https:// or http://"
	case strings.Contains(host, "{{") || !path && strings.Contains(rest, "{{"):
		return "has its host in a template: write the host as it is, and a / after it"
	case host == "":
		return "has no host"
	}
	if u, err := url.Parse(template[:len(template)-len(rest)] + host + "/"); err != nil || u.User != nil || u.Hostname() == "" {
		return "has no valid host, or a user in it"
	}
	return ""
}

// sameHost: what was put in has not changed whom the URL names.
func sameHost(template, rendered string) error {
	want := template
	if i := strings.Index(template, "{{"); i >= 0 {
		want = template[:i]
	}
	a, errA := url.Parse(want)
	b, errB := url.Parse(rendered)
	if errA != nil || errB != nil || a.Host != b.Host || a.Scheme != b.Scheme {
		return &ident.Error{Field: "url", Reason: fmt.Sprintf("%.200q is no URL of the host that the step names", rendered)}
	}
	return nil
}
