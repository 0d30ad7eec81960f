package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/auth"
)

// stats are the calls that count.
func (s *Server) stats() {
	a, tag := s.cfg.API, "stats"
	add(s, operation{id: "getStats", method: http.MethodGet, path: "/v1/stats", tag: tag, scope: auth.Read, summary: "Count the instances of the project by their status"}, a.Stats)
	add(s, operation{id: "listWorkers", method: http.MethodGet, path: "/v1/workers", tag: tag, scope: auth.Read, shared: true, summary: "List the workers, and what they serve"}, shared(a.Workers))
	add(s, operation{id: "listQueues", method: http.MethodGet, path: "/v1/queues", tag: tag, scope: auth.Read, shared: true, summary: "List the queues, and what waits in them"}, shared(a.Queues))
}
