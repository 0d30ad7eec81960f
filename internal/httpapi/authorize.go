package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

// authorize says who sends a request, and for which project it is.
func (s *Server) authorize(o operation, r *http.Request) (auth.Principal, string, error) {
	p, err := s.authenticate(r, o.streams)
	if err != nil {
		return p, "", err
	}
	asked, err := askedProject(r.URL.Query())
	if err != nil {
		return p, "", err
	}
	project, err := s.cfg.API.ProjectOf(asked)
	if err != nil {
		return p, "", err
	}
	if p.Project != "" {
		if asked != "" && asked != p.Project {
			return p, "", forbidden("the API key is of the project %s", p.Project)
		}
		project = p.Project
	}
	switch {
	case o.shared && p.Project != "":
		return p, "", forbidden("this belongs to no project: it takes the admin token, and an API key will not do")
	case p.Scope < o.scope:
		return p, "", forbidden("this takes the scope %s, and the API key has %s", o.scope, p.Scope)
	}
	return p, project, nil
}

// askedProject is the project of a query, which may name it as the JSON of a trigger does.
func askedProject(query url.Values) (string, error) {
	project, id := query.Get("project"), query.Get("project_id")
	if project != "" && id != "" && project != id {
		return "", invalid("project_id", "is another name of project, and they differ: leave one of them out")
	}
	return cmp.Or(project, id), nil
}

// authenticate finds the token. Only a stream may have it in its query, as a browser cannot send a header with one.
func (s *Server) authenticate(r *http.Request, inQuery bool) (auth.Principal, error) {
	token, err := bearer(r)
	if err != nil {
		return auth.Principal{}, err
	}
	if inQuery && token == "" {
		token = r.URL.Query().Get("token")
	}
	p, err := s.cfg.Guard.Authenticate(r.Context(), token)
	switch {
	case errors.Is(err, auth.ErrUnauthorized) && token == "":
		return p, unauthorized("this takes a token: send the header \"Authorization: Bearer <API key or admin token>\"")
	case errors.Is(err, auth.ErrUnauthorized):
		return p, unauthorized("the token is not known, or was revoked")
	case err != nil:
		return p, err
	}
	if p.Name == "" && !local(r.Host) { // nobody had to say who they are: a page whose name leads here must not speak for them
		return p, forbidden("the API is open on this machine only, and %s is not its name: use 127.0.0.1 or localhost, or set an admin token", shown(r.Host))
	}
	return p, nil
}

func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		return "", unauthorized("the header Authorization is not \"Bearer <API key or admin token>\"")
	}
	return strings.TrimSpace(token), nil
}

// local says whether a Host header names this machine.
func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

func unauthorized(message string) error {
	return &api.Error{Code: api.CodeUnauthorized, Message: message}
}

func forbidden(format string, args ...any) error {
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf(format, args...)}
}
