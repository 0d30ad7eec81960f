package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
)

const eventPath = "/v1/events/{event_key}"

// triggers are the calls that wait for events, and send them.
func (s *Server) triggers() {
	a, tag := s.cfg.API, "events"
	add(s, operation{
		id: "createTrigger", method: http.MethodPost, path: "/v1/triggers", tag: tag, scope: auth.Send, status: http.StatusCreated,
		summary: "Wait for an event",
	}, a.CreateTrigger)
	add(s, operation{
		id: "waitForEvent", method: http.MethodPost, path: instancePath + "/wait-for-event", tag: tag, scope: auth.Send, status: http.StatusCreated,
		summary: "Have an instance wait for an event, which goes into its inbox",
	}, a.WaitForEvent)
	add(s, operation{id: "listTriggers", method: http.MethodGet, path: "/v1/events", tag: tag, scope: auth.Read, summary: "List triggers, the latest first"}, a.Triggers)
	add(s, operation{id: "getTriggerStats", method: http.MethodGet, path: "/v1/events/stats", tag: tag, scope: auth.Read, summary: "Count the triggers by their status, each up to 100,000"}, a.TriggerStats)
	add(s, operation{
		id: "purgeTriggers", method: http.MethodPost, path: "/v1/events/purge", tag: tag, scope: auth.Admin, long: true,
		summary: "Delete triggers that ended so many days ago, or say how many it would",
	}, a.PurgeTriggers)
	add(s, operation{id: "getTrigger", method: http.MethodGet, path: eventPath, tag: tag, scope: auth.Read, summary: "Get the trigger that waits with a key, or else the last one that did"}, a.Trigger)
	add(s, operation{
		id: "cancelTrigger", method: http.MethodDelete, path: eventPath, tag: tag, scope: auth.Send,
		summary: "Cancel the trigger that waits with a key, and wake who awaits it",
	}, a.CancelTrigger)
	add(s, operation{
		id: "sendEvent", method: http.MethodPost, path: eventPath + "/send", tag: tag, scope: auth.Send,
		summary: "Send an event to the trigger that waits with the key; with hold keep it for one that is created later",
		answers: []any{api.Trigger{}, api.HeldEvent{}}, statuses: []int{http.StatusAccepted},
		statusOf: func(answer any) int {
			if _, held := answer.(api.HeldEvent); held {
				return http.StatusAccepted
			}
			return http.StatusOK
		},
	}, a.SendEvent)
	add(s, operation{
		id: "sendEventPrefix", method: http.MethodPost, path: "/v1/events/prefix/{prefix}/send", tag: tag, scope: auth.Send, long: true,
		summary: "Send an event to every trigger that waits with a key that begins so",
	}, a.SendEventPrefix)
	stream(s, operation{
		id: "streamTrigger", method: http.MethodGet, path: eventPath + "/stream", tag: tag, scope: auth.Read,
		summary: "Watch a trigger: its state now, and its end",
	}, "status", a.WatchTrigger)
}
