package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/httpapi"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// asker carries requests to a bridge, over NATS or HTTP: the verbs, the requests and the errors are the same.
type asker interface {
	// Do sends a request and reads its answer into response. headers are pairs of name and value.
	Do(ctx context.Context, verb string, request, response any, headers ...string) error
}

// overHTTP asks the HTTP API.
type overHTTP struct{ *httpapi.Client }

const (
	instancePath = "/v1/instances/{ref}"
	triggerPath  = "/v1/events/{event_key}"
)

// calls are the operations of the HTTP API, by verb.
var calls = map[string]httpapi.Call{
	natsapi.VerbStart:    {Method: http.MethodPost, Path: "/v1/instances", Whole: true},
	natsapi.VerbSignal:   {Method: http.MethodPost, Path: "/v1/signals", Whole: true},
	natsapi.VerbGet:      {Method: http.MethodGet, Path: instancePath},
	natsapi.VerbList:     {Method: http.MethodGet, Path: "/v1/instances"},
	natsapi.VerbInbox:    {Method: http.MethodGet, Path: instancePath + "/inbox"},
	natsapi.VerbHistory:  {Method: http.MethodGet, Path: instancePath + "/history"},
	natsapi.VerbEvents:   {Method: http.MethodGet, Path: instancePath + "/events"},
	natsapi.VerbChildren: {Method: http.MethodGet, Path: instancePath + "/children"},
	natsapi.VerbUpdate:   {Method: http.MethodPost, Path: instancePath + "/updates/{name}"},
	natsapi.VerbCancel:   {Method: http.MethodDelete, Path: instancePath},
	natsapi.VerbRetry:    {Method: http.MethodPost, Path: instancePath + "/retry"},
	natsapi.VerbPause:    {Method: http.MethodPost, Path: instancePath + "/pause"},
	natsapi.VerbResume:   {Method: http.MethodPost, Path: instancePath + "/resume"},
	natsapi.VerbHeld:     {Method: http.MethodGet, Path: "/v1/held"},

	natsapi.VerbDeadLetters: {Method: http.MethodGet, Path: "/v1/dead-letters"},
	natsapi.VerbDeadLetter:  {Method: http.MethodGet, Path: "/v1/dead-letters/{seq}"},
	natsapi.VerbReplay:      {Method: http.MethodPost, Path: "/v1/dead-letters/replay"},
	natsapi.VerbDrop:        {Method: http.MethodPost, Path: "/v1/dead-letters/drop"},
	natsapi.VerbMessage:     {Method: http.MethodGet, Path: "/v1/messages"},

	natsapi.VerbRoutes:       {Method: http.MethodGet, Path: "/v1/routes"},
	natsapi.VerbRoutesTest:   {Method: http.MethodPost, Path: "/v1/routes/test"},
	natsapi.VerbRoutesPause:  {Method: http.MethodPost, Path: "/v1/routes/{name}/pause"},
	natsapi.VerbRoutesResume: {Method: http.MethodPost, Path: "/v1/routes/{name}/resume"},
	natsapi.VerbRoutesRewind: {Method: http.MethodPost, Path: "/v1/routes/{name}/rewind"},

	natsapi.VerbStats:         {Method: http.MethodGet, Path: "/v1/stats"},
	natsapi.VerbWorkers:       {Method: http.MethodGet, Path: "/v1/workers"},
	natsapi.VerbQueues:        {Method: http.MethodGet, Path: "/v1/queues"},
	natsapi.VerbWebhooks:      {Method: http.MethodGet, Path: "/v1/webhook-deliveries"},
	natsapi.VerbWebhook:       {Method: http.MethodGet, Path: "/v1/webhook-deliveries/{id}"},
	natsapi.VerbWebhookRetry:  {Method: http.MethodPost, Path: "/v1/webhook-deliveries/{id}/retry"},
	natsapi.VerbWebhooksRetry: {Method: http.MethodPost, Path: "/v1/webhook-deliveries/retry"},

	natsapi.VerbSend:           {Method: http.MethodPost, Path: triggerPath + "/send"},
	natsapi.VerbTriggers:       {Method: http.MethodGet, Path: "/v1/events"},
	natsapi.VerbTrigger:        {Method: http.MethodGet, Path: triggerPath},
	natsapi.VerbTriggersCreate: {Method: http.MethodPost, Path: "/v1/triggers"},
	natsapi.VerbTriggersWait:   {Method: http.MethodPost, Path: instancePath + "/wait-for-event"},
	natsapi.VerbTriggersCancel: {Method: http.MethodDelete, Path: triggerPath},
	natsapi.VerbTriggersPrefix: {Method: http.MethodPost, Path: "/v1/events/prefix/{prefix}/send"},
	natsapi.VerbTriggersStats:  {Method: http.MethodGet, Path: "/v1/events/stats"},
	natsapi.VerbTriggersPurge:  {Method: http.MethodPost, Path: "/v1/events/purge"},
}

// Do finds the operation of a verb.
func (o overHTTP) Do(ctx context.Context, verb string, request, response any, headers ...string) error {
	call, ok := calls[verb]
	if !ok {
		return fmt.Errorf("%s cannot be asked over HTTP: leave --url out, and it is asked over NATS", verb)
	}
	switch r := request.(type) {
	case api.EventsRequest:
		if r.Key != "" { // one value has a path of its own
			call.Path += "/{key}"
		}
	case api.TriggerRequest: // what is reserved is the path of another operation
		var wrong *ident.Error
		if errors.As(ident.EventKey("event_key", r.EventKey), &wrong) {
			return &api.Error{Code: api.CodeInvalid, Message: wrong.Error(), Details: map[string]any{"field": wrong.Field}}
		}
	}
	return o.Client.Do(ctx, call, request, response, headers...)
}
