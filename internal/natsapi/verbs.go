package natsapi

import (
	"context"
	"maps"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/subjects"
)

// Verbs of requests: the last token of their subject, and the name of their endpoint.
const (
	VerbStart       = "start"
	VerbSignal      = "signal"
	VerbGet         = "get"
	VerbList        = "list"
	VerbInbox       = "inbox"
	VerbHistory     = "history"
	VerbEvents      = "events"
	VerbUpdate      = "update"
	VerbCancel      = "cancel"
	VerbRetry       = "retry"
	VerbPause       = "pause"
	VerbResume      = "resume"
	VerbHeld        = "held"
	VerbDeadLetters = "dead-letters"
	VerbDeadLetter  = "dead-letter"
	VerbReplay      = "dead-letters-replay"
	VerbDrop        = "dead-letters-drop"
	VerbMessage     = "message"
	VerbRoutesTest  = "routes-test"

	VerbRoutes       = "routes"
	VerbRoutesPause  = "routes-pause"
	VerbRoutesResume = "routes-resume"
	VerbRoutesRewind = "routes-rewind"

	VerbStats         = "stats"
	VerbWorkers       = "workers"
	VerbQueues        = "queues"
	VerbWebhooks      = "webhooks"
	VerbWebhook       = "webhook"
	VerbWebhookRetry  = "webhook-retry"
	VerbWebhooksRetry = "webhooks-retry"
	VerbChildren      = "children"

	VerbJobs       = "jobs"
	VerbJob        = "jobs-get"
	VerbJobsStart  = "jobs-start"
	VerbJobsCancel = "jobs-cancel"
)

// operation answers a request of a project.
type operation func(ctx context.Context, project string, h nats.Header, body []byte) (any, error)

// operations of an API, by verb.
func operations(a *api.API) map[string]operation {
	return map[string]operation{
		VerbStart: func(ctx context.Context, project string, h nats.Header, body []byte) (any, error) {
			r := api.StartRequest{Atomic: atomic(h), IdempotencyKey: h.Get(subjects.HeaderIdempotencyKey)}
			if err := api.Decode(body, &r.Items); err != nil {
				return nil, err
			}
			return a.Start(ctx, project, r)
		},
		VerbSignal: func(ctx context.Context, project string, h nats.Header, body []byte) (any, error) {
			r := api.SignalRequest{Atomic: atomic(h), IdempotencyKey: h.Get(subjects.HeaderIdempotencyKey)}
			if err := api.Decode(body, &r.Items); err != nil {
				return nil, err
			}
			return a.Signal(ctx, project, r)
		},
		VerbUpdate: func(ctx context.Context, project string, h nats.Header, body []byte) (any, error) {
			var r api.UpdateRequest
			if err := api.Decode(body, &r); err != nil {
				return nil, err
			}
			if r.IdempotencyKey == "" {
				r.IdempotencyKey = h.Get(subjects.HeaderIdempotencyKey)
			}
			return a.Update(ctx, project, r)
		},
		VerbGet:         of(a.Get),
		VerbList:        of(a.List),
		VerbInbox:       of(a.Inbox),
		VerbHistory:     of(a.History),
		VerbEvents:      of(a.Events),
		VerbCancel:      of(a.Cancel),
		VerbRetry:       of(a.Retry),
		VerbPause:       of(a.Pause),
		VerbResume:      of(a.Resume),
		VerbHeld:        of(a.Held),
		VerbDeadLetters: of(anyProject(a.DeadLetters)),
		VerbDeadLetter:  of(anyProject(a.DeadLetter)),
		VerbReplay:      of(anyProject(a.ReplayLetters)),
		VerbDrop:        of(anyProject(a.DropLetters)),
		VerbMessage:     of(anyProject(a.Message)),
		VerbRoutesTest:  of(anyProject(a.TestRoutes)),

		VerbRoutes:       of(anyProject(a.Routes)),
		VerbRoutesPause:  of(anyProject(a.PauseRoute)),
		VerbRoutesResume: of(anyProject(a.ResumeRoute)),
		VerbRoutesRewind: of(anyProject(a.RewindRoute)),

		VerbStats:         of(a.Stats),
		VerbWorkers:       of(anyProject(a.Workers)),
		VerbQueues:        of(anyProject(a.Queues)),
		VerbWebhooks:      of(a.Webhooks),
		VerbWebhook:       of(a.Webhook),
		VerbWebhookRetry:  of(a.RetryWebhook),
		VerbWebhooksRetry: of(a.RetryWebhooks),
		VerbChildren:      of(a.Children),

		VerbJobs: of(a.Jobs),
		VerbJob:  of(a.Job),
		VerbJobsStart: func(ctx context.Context, project string, h nats.Header, body []byte) (any, error) {
			var r api.NewJob
			if err := api.Decode(body, &r); err != nil {
				return nil, err
			}
			if r.IdempotencyKey == "" {
				r.IdempotencyKey = h.Get(subjects.HeaderIdempotencyKey)
			}
			return a.StartJob(ctx, project, r)
		},
		VerbJobsCancel: of(a.CancelJob),
	}
}

// allOperations are those of all verbs.
func allOperations(a *api.API) map[string]operation {
	all := operations(a)
	maps.Copy(all, triggerOperations(a))
	return all
}

// of makes an operation of one whose request is all in the body.
func of[Req, Res any](do func(ctx context.Context, project string, r Req) (Res, error)) operation {
	return func(ctx context.Context, project string, _ nats.Header, body []byte) (any, error) {
		var r Req
		if err := api.Decode(body, &r); err != nil {
			return nil, err
		}
		return do(ctx, project, r)
	}
}

// anyProject is for what belongs to no project: messages and dead letters are the stream's.
func anyProject[Req, Res any](do func(ctx context.Context, r Req) (Res, error)) func(context.Context, string, Req) (Res, error) {
	return func(ctx context.Context, _ string, r Req) (Res, error) { return do(ctx, r) }
}

func atomic(h nats.Header) bool { return strings.EqualFold(h.Get(subjects.HeaderAtomic), "true") }
