package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/auth"
)

// jobs are the calls about work on many instances.
func (s *Server) jobs() {
	const tag, all = "jobs", "/v1/jobs"
	a := s.cfg.API
	add(s, operation{
		id: "startJob", method: http.MethodPost, path: all, tag: tag, scope: auth.Admin, status: http.StatusCreated,
		summary: "Signal, cancel, retry, pause or resume all instances that a filter finds, or count them",
	}, a.StartJob)
	add(s, operation{id: "listJobs", method: http.MethodGet, path: all, tag: tag, scope: auth.Read, summary: "List jobs, the newest first"}, a.Jobs)
	add(s, operation{id: "getJob", method: http.MethodGet, path: all + "/{id}", tag: tag, scope: auth.Read, summary: "How far a job has come"}, a.Job)
	add(s, operation{id: "cancelJob", method: http.MethodDelete, path: all + "/{id}", tag: tag, scope: auth.Admin, summary: "End a job after the batch that is in work"}, a.CancelJob)
}
