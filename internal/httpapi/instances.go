package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

const instancePath = "/v1/instances/{ref}"

// instances are the calls that start, show and operate instances.
func (s *Server) instances() {
	a, tag := s.cfg.API, "instances"
	add(s, operation{
		id: "startInstances", method: http.MethodPost, path: "/v1/instances", tag: tag, scope: auth.Send, large: true,
		summary: "Start an instance, or each of an array", status: http.StatusCreated, statuses: []int{http.StatusOK}, answers: []any{api.Instance{}, api.Results{}},
		statusOf: func(answer any) int {
			if _, array := answer.(api.Results); array {
				return http.StatusOK
			}
			return http.StatusCreated
		},
	}, a.Start)
	add(s, operation{id: "listInstances", method: http.MethodGet, path: "/v1/instances", tag: tag, scope: auth.Read, summary: "List instances, the newest first"}, a.List)
	add(s, operation{
		id: "getInstance", method: http.MethodGet, path: instancePath, tag: tag, scope: auth.Read, waits: true,
		summary: "Get an instance; with wait when it has ended, or the time is up",
	}, a.Get)
	add(s, operation{id: "getInbox", method: http.MethodGet, path: instancePath + "/inbox", tag: tag, scope: auth.Read, summary: "List the signals that wait, in the order of arrival"}, a.Inbox)
	add(s, operation{id: "getHistory", method: http.MethodGet, path: instancePath + "/history", tag: tag, scope: auth.Read, summary: "List the latest transitions, the latest first"}, a.History)
	add(s, operation{
		id: "getEvents", method: http.MethodGet, path: instancePath + "/events", tag: tag, scope: auth.Read, omit: []string{"key"},
		summary: "Get all published values", answers: []any{map[string]json.RawMessage{}},
	}, a.Events)
	add(s, operation{
		id: "getEvent", method: http.MethodGet, path: instancePath + "/events/{key}", tag: tag, scope: auth.Read,
		summary: "Get one published value, bare", answers: []any{json.RawMessage{}},
	}, a.Events)
	add(s, operation{id: "listChildren", method: http.MethodGet, path: instancePath + "/children", tag: tag, scope: auth.Read, summary: "List the instances that it has started as its children"}, a.Children)

	add(s, operation{
		id: "cancelInstance", method: http.MethodDelete, path: instancePath, tag: tag, scope: auth.Admin,
		summary: "End an instance; one that has ended stays as it ended",
	}, a.Cancel)
	for _, o := range []struct {
		verb, summary string
		do            func(context.Context, string, api.RefRequest) (api.Instance, error)
	}{
		{"retry", "Run the step of a failed or canceled instance again", a.Retry},
		{"pause", "Keep an instance from running, while its inbox fills", a.Pause},
		{"resume", "Let a paused instance run again", a.Resume},
	} {
		add(s, operation{id: o.verb + "Instance", method: http.MethodPost, path: instancePath + "/" + o.verb, tag: tag, scope: auth.Admin, summary: o.summary}, o.do)
	}
}
