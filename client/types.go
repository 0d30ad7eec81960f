package client

import (
	"errors"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

// The types of requests and answers are those of the API.
type (
	Instance    = api.Instance
	NewInstance = api.NewInstance
	NewSignal   = api.NewSignal
	Signaled    = api.Signaled
	Signal      = api.Signal
	Transition  = engine.Transition
	Item        = api.Item
	Filter      = api.ListRequest
	Error       = api.Error
	Status      = engine.Status
	Updated     = api.Updated

	InstancePage   = api.Page[api.Instance]
	SignalPage     = api.Page[api.Signal]
	TransitionPage = api.Page[engine.Transition]

	Trigger       = api.Trigger
	NewTrigger    = api.NewTrigger
	TriggerFilter = api.TriggersRequest
	TriggerPage   = api.Page[api.Trigger]
	TriggerStats  = engine.TriggerStats

	Route        = api.Route
	RoutePause   = api.RoutePause
	RouteTest    = api.RouteTest
	TestMessage  = api.TestRequest
	HeaderValue  = api.HeaderValue
	Rewind       = api.RewindRequest
	Rewound      = api.Rewound
	RewindCounts = api.RewindDryRun
	MessageRef   = api.MessageRequest
	Message      = api.Message

	DeadLetter        = api.DeadLetter
	DeadLetterContent = api.DeadLetterContent
	DeadLetterFilter  = api.DeadLettersRequest
	DeadLetterChoice  = api.LettersChoice
	DeadLetterPage    = api.Page[api.DeadLetter]
	LetterResult      = api.LetterResult
	LetterResultPage  = api.Page[api.LetterResult]

	Stats      = api.Stats
	Worker     = api.Worker
	Queue      = api.Queue
	HeldSignal = api.HeldSignal
	WorkerPage = api.Page[api.Worker]
	QueuePage  = api.Page[api.Queue]
	HeldFilter = api.HeldRequest
	HeldPage   = api.Page[api.HeldSignal]

	WebhookDelivery = api.WebhookDelivery
	WebhookFilter   = api.WebhooksRequest
	WebhookPage     = api.Page[api.WebhookDelivery]
	WebhookResult   = api.WebhookResult

	Job       = api.Job
	NewJob    = api.NewJob
	JobFilter = engine.Filter
	JobArgs   = engine.JobArgs
	JobPage   = api.Page[api.Job]
)

// Codes of errors.
const (
	CodeInvalid      = api.CodeInvalid
	CodeUnauthorized = api.CodeUnauthorized
	CodeForbidden    = api.CodeForbidden
	CodeNotFound     = api.CodeNotFound
	CodeNoTarget     = api.CodeNoTarget
	CodeConflict     = api.CodeConflict
	CodeTooLarge     = api.CodeTooLarge
	CodeQuota        = api.CodeQuota
	CodeUnavailable  = api.CodeUnavailable
)

// Code is the code of a refusal, "" for any other error.
func Code(err error) string {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// Ref names an instance. The zero Ref names nobody.
type Ref struct{ text string }

// ByID refers to the instance with this id.
func ByID(id uuid.UUID) Ref { return Ref{id.String()} }

// ByKey refers to the live instance that holds this correlation key, or else to the one that held it last.
func ByKey(key string) Ref { return Ref{"key:" + key} }

// ParseRef reads a reference as the API writes it: an id, or key:<correlation key>. What is wrong with it the server says.
func ParseRef(s string) Ref { return Ref{s} }

func (r Ref) String() string { return r.text }
