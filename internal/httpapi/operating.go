package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

// operating are the calls about what belongs to streams and routes, and so to no project.
func (s *Server) operating() {
	a, tag := s.cfg.API, "routes"
	add(s, operation{id: "listRoutes", method: http.MethodGet, path: "/v1/routes", tag: tag, scope: auth.Read, shared: true, summary: "Where the routes stand"}, shared(a.Routes))
	add(s, operation{
		id: "testRoutes", method: http.MethodPost, path: "/v1/routes/test", tag: tag, scope: auth.Read, shared: true, large: true,
		summary: "What the routes would make of a message",
	}, shared(a.TestRoutes))
	add(s, operation{id: "pauseRoute", method: http.MethodPost, path: "/v1/routes/{name}/pause", tag: tag, scope: auth.Admin, shared: true, summary: "Keep all bridges from reading a route"}, shared(a.PauseRoute))
	add(s, operation{id: "resumeRoute", method: http.MethodPost, path: "/v1/routes/{name}/resume", tag: tag, scope: auth.Admin, shared: true, summary: "End a pause"}, shared(a.ResumeRoute))
	add(s, operation{
		id: "rewindRoute", method: http.MethodPost, path: "/v1/routes/{name}/rewind", tag: tag, scope: auth.Admin, shared: true,
		summary: "Read a stream again from a time or a sequence on", answers: []any{api.Rewound{}, api.RewindDryRun{}},
	}, shared(a.RewindRoute))
	add(s, operation{id: "getMessage", method: http.MethodGet, path: "/v1/messages", tag: tag, scope: auth.Read, shared: true, summary: "The fate of a message"}, shared(a.Message))

	tag = "dead letters"
	const letter = "/v1/dead-letters/{seq}"
	add(s, operation{id: "listDeadLetters", method: http.MethodGet, path: "/v1/dead-letters", tag: tag, scope: auth.Read, shared: true, summary: "List dead letters, the latest first"}, shared(a.DeadLetters))
	add(s, operation{id: "getDeadLetter", method: http.MethodGet, path: letter, tag: tag, scope: auth.Read, shared: true, summary: "Get a dead letter with its content"}, shared(a.DeadLetter))
	add(s, operation{id: "replayDeadLetter", method: http.MethodPost, path: letter + "/replay", tag: tag, scope: auth.Admin, shared: true, summary: "Give a dead letter again to the route that refused it"}, shared(a.ReplayLetter))
	add(s, operation{id: "dropDeadLetter", method: http.MethodDelete, path: letter, tag: tag, scope: auth.Admin, shared: true, summary: "Delete a dead letter for good"}, shared(a.DropLetter))
	add(s, operation{
		id: "replayDeadLetters", method: http.MethodPost, path: "/v1/dead-letters/replay", tag: tag, scope: auth.Admin, shared: true,
		summary: "Replay a choice of dead letters, page by page",
	}, shared(a.ReplayLetters))
	add(s, operation{
		id: "dropDeadLetters", method: http.MethodPost, path: "/v1/dead-letters/drop", tag: tag, scope: auth.Admin, shared: true,
		summary: "Delete a choice of dead letters for good, page by page",
	}, shared(a.DropLetters))
}
