package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

// updates are requests to instances that can be refused.
func (s *Server) updates() {
	add(s, operation{
		id: "updateInstance", method: http.MethodPost, path: instancePath + "/updates/{name}", tag: "instances", scope: auth.Send, waits: true,
		summary: "Steer an instance by an update: the body is its argument", statuses: []int{http.StatusUnprocessableEntity},
		statusOf: func(answer any) int {
			if u, ok := answer.(api.Updated); ok && !u.Accepted {
				return http.StatusUnprocessableEntity
			}
			return http.StatusOK
		},
	}, s.cfg.API.Update)
}

// verdict is [api.Updated] as it is written.
type verdict struct {
	Accepted bool          `json:"accepted"`
	Reason   string        `json:"reason" required:"false"` // of a refusal
	Run      *api.Instance `json:"run" required:"false"`    // of what was accepted; null: no step has taken it yet
}
