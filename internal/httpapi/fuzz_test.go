package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/internal/api"
)

// FuzzHTTPRequest gives a server whatever may come: it answers, with the error of the contract or without one, and it is never its fault.
func FuzzHTTPRequest(f *testing.F) {
	for _, seed := range []struct{ method, target, header, value, body string }{
		{"POST", "/v1/instances", "Idempotency-Key", "k", `{"machine": "m", "correlation_key": "a"}`},
		{"POST", "/v1/instances?atomic=true", "", "", `[{"machine": "m"}, null]`},
		{"GET", "/v1/instances?status=done&limit=1&cursor=e30", "Accept-Encoding", "gzip", ""},
		{"GET", "/v1/instances/key:a%2Fb?wait=1ns", "If-None-Match", `W/"x"`, ""},
		{"POST", "/v1/instances/key:a/signals/x", "Idempotency-Key", "\xff", `[1e999, "\ud800"]`},
		{"POST", "/v1/signals", "Content-Encoding", "gzip", `[{"correlation_key": "a", "name": "n", "payload": 1}]`},
		{"GET", "/v1/instances/key:a/events/%00", "Last-Event-ID", "x", ""},
		{"DELETE", "/v1/instances/key:%ff?reason=x", "Authorization", "Bearer ", ""},
		{"POST", "/v1/routes/test", "X-Request-Id", "a b", `{"subject": "a.b", "headers": {"x": [1]}, "data": 1}`},
		{"POST", "/v1/routes/x/rewind", "", "", `{"to_time": "soon"}`},
		{"GET", "/v1/dead-letters/18446744073709551615", "", "", ""},
		{"GET", "/v1/messages?stream=a.b&seq=1", "Host", "x", ""},
		{"GET", "//v1/../instances", "Origin", "null", ""},
		{"OPTIONS", "*", "", "", "{"},
		{"GET", "/v1/queues?cursor=IlwwIg", "", "", ""},
	} {
		f.Add(seed.method, seed.target, seed.header, seed.value, []byte(seed.body))
	}
	s := newStub(f)
	f.Fuzz(func(t *testing.T, method, target, header, value string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || strings.Contains(target, "stream") && u.Path != "" && strings.HasSuffix(u.Path, "/stream") {
			t.Skip() // net/http refuses it; or it would be answered for as long as one listens
		}
		r := &http.Request{
			Method: method, URL: u, RequestURI: target, Host: "localhost", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{http.CanonicalHeaderKey(header): {value}}, Body: http.NoBody, ContentLength: int64(len(body)),
		}
		if len(body) > 0 {
			r.Body = readCloser{bytes.NewReader(body)}
		}
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code >= 500 && w.Code != http.StatusServiceUnavailable || w.Code == http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), `"unavailable"`) {
			t.Fatalf("%s %s: %d: %s", method, target, w.Code, w.Body)
		}
		if w.Code < 400 || method == http.MethodHead || w.Header().Get("Content-Encoding") != "" {
			return
		}
		var e api.ErrorBody
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == nil || e.Error.Code == "" || e.Error.Message == "" {
			t.Fatalf("%s %s: %d: %s", method, target, w.Code, w.Body)
		}
		if w.Code == http.StatusServiceUnavailable {
			t.Fatalf("%s %s: %s", method, target, w.Body)
		}
	})
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }
