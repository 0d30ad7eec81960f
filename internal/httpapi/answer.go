package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/ident"
)

const headerRequestID = "X-Request-Id"

// answer writes what an operation came to.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, o operation, answer any) error {
	body, err := ident.Encode(answer)
	if err != nil {
		return err
	}
	if o.tagged() {
		tag := etag(body)
		w.Header().Set("ETag", tag)
		if matches(r.Header.Values("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	s.send(w, r, o.success(answer), body)
	return nil
}

// etag of a body. It is a weak one, as the body may be compressed on its way.
func etag(body []byte) string { return `W/"` + digest(body) + `"` }

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func matches(values []string, tag string) bool {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := api.ErrorOf(err)
	switch e.Code {
	case api.CodeUnavailable:
		w.Header().Set("Retry-After", "1")
		if r.Context().Err() == nil { // else nobody waits for it any more
			s.log(r).Warn("a request failed", "error", err)
		}
	case api.CodeUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="pointsman"`)
	case api.CodeTooLarge:
		w.Header().Set("Connection", "close") // nobody reads the rest
	}
	s.write(w, r, api.Status(e.Code), e)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, e *api.Error) {
	body, err := ident.Encode(api.ErrorBody{Error: e})
	if err != nil {
		body = []byte(`{"error":{"code":"unavailable","message":"the error cannot be written"}}`)
	}
	s.send(w, r, status, body)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.log(r).Debug("an answer is lost", "error", err)
	}
}

// secure sets what every answer has: nothing here is a page, and nothing is for the cache of anybody.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
}

type requestIDKey struct{}

var requestID = regexp.MustCompile(`^[A-Za-z0-9._:/+=@-]{1,128}$`)

// identify gives a request the id that it brings, or else one of ours; the answer and the log have it.
func identify(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(headerRequestID)
	if !requestID.MatchString(id) {
		id = uuid.NewString()
	}
	w.Header().Set(headerRequestID, id)
	return r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
}

// log of a request. The path may name keys of customers, but not tokens: these are in the query, which it leaves out.
func (s *Server) log(r *http.Request) *slog.Logger {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	return s.cfg.Logger.With("method", r.Method, "path", shown(r.URL.Path), "request_id", id)
}
