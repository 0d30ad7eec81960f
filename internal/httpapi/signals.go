package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

// signals are the calls that put something into an inbox.
func (s *Server) signals() {
	a, tag := s.cfg.API, "signals"
	add(s, operation{
		id: "signalInstance", method: http.MethodPost, path: instancePath + "/signals/{name}", tag: tag, scope: auth.Send, status: http.StatusAccepted,
		summary: "Send a signal: the body is its payload, the Idempotency-Key its dedup key",
	}, a.SignalTo)
	add(s, operation{
		id: "sendSignals", method: http.MethodPost, path: "/v1/signals", tag: tag, scope: auth.Send, large: true,
		summary: "Send a signal, or each of an array", status: http.StatusAccepted, statuses: []int{http.StatusOK}, answers: []any{api.Signaled{}, api.Results{}},
		statusOf: func(answer any) int {
			if _, array := answer.(api.Results); array {
				return http.StatusOK
			}
			return http.StatusAccepted
		},
	}, a.Signal)
	add(s, operation{id: "listHeld", method: http.MethodGet, path: "/v1/held", tag: tag, scope: auth.Read, summary: "List the signals that wait for an instance to start with their key"}, a.Held)
}
