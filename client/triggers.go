package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/pointsman/pointsman/internal/api"
)

// CreateTrigger waits for an event, for nobody in particular. The code of the error is conflict where another trigger waits with the key, and
// quota where the project has too many. It is sent once: a second one would find that the key is taken.
func (c *Client) CreateTrigger(ctx context.Context, n NewTrigger) (t Trigger, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "triggers"}, body: n}, &t)
	return t, err
}

// WaitForEvent has a live instance wait for an event, which goes into its inbox. It is sent once, as CreateTrigger is.
func (c *Client) WaitForEvent(ctx context.Context, ref Ref, n NewTrigger) (t Trigger, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "instances", ref.text, "wait-for-event"}, body: n}, &t)
	return t, err
}

// SentEvent says what became of an event: of the two one is set.
type SentEvent struct {
	Trigger   *Trigger  // that has the event, now or before
	HeldUntil time.Time // nobody waits for it yet
}

// SendEvent gives an event to the trigger that waits with the key. payload is what can be written as JSON. With hold, at most a year, an
// event whose key nobody has used is kept so long for a trigger that is created later. A second event with the same payload changes nothing,
// so the request may be sent again; where a key is used again at once, the next trigger may then get the event too. The code of the error is
// not_found where nobody waits and the event is not held, and conflict where the key's last trigger ended otherwise.
func (c *Client) SendEvent(ctx context.Context, key string, payload any, hold time.Duration) (sent SentEvent, err error) {
	query := url.Values{}
	if hold != 0 {
		query.Set("hold", hold.String())
	}
	var text json.RawMessage
	r := call{method: http.MethodPost, path: []string{"v1", "events", key, "send"}, query: query, body: map[string]any{"payload": payload}, again: true}
	if err := c.do(ctx, r, &text); err != nil {
		return sent, err
	}
	var held api.HeldEvent
	if err := json.Unmarshal(text, &held); err != nil {
		return sent, err
	}
	if held.Result != "" {
		return SentEvent{HeldUntil: held.HeldUntil}, nil
	}
	return sent, json.Unmarshal(text, &sent.Trigger)
}

// SendEventPrefix gives an event to every trigger that waits with a key that begins so, and says how many have received it. A request that
// is cut off goes on when it is sent again: each trigger gets the event once, and the count is that of the last request.
func (c *Client) SendEventPrefix(ctx context.Context, prefix string, payload any) (received int, err error) {
	var sent api.SentToPrefix
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "events", "prefix", prefix, "send"}, body: map[string]any{"payload": payload}, again: true}, &sent)
	return sent.Count, err
}

// CancelTrigger cancels the trigger that waits with a key, and wakes who awaits it; one that is canceled stays so. The code of the error is
// not_found where there is none, and conflict where it has received its event or timed out.
func (c *Client) CancelTrigger(ctx context.Context, key string) (t Trigger, err error) {
	err = c.do(ctx, call{method: http.MethodDelete, path: []string{"v1", "events", key}, again: true}, &t)
	return t, err
}

// Trigger returns the trigger that waits with a key, or else the last one that did.
func (c *Client) Trigger(ctx context.Context, key string) (t Trigger, err error) {
	err = c.get(ctx, nil, &t, "events", key)
	return t, err
}

// Triggers returns a page of the triggers, the latest first.
func (c *Client) Triggers(ctx context.Context, f TriggerFilter) (page TriggerPage, err error) {
	query := parameters(f.Limit, "status", f.Status, "source_type", f.SourceType, "workflow_run_id", f.WorkflowRunID, "cursor", f.Cursor)
	err = c.get(ctx, query, &page, "events")
	return page, err
}

// TriggerStats counts the triggers by their status, each up to 100,000.
func (c *Client) TriggerStats(ctx context.Context) (stats TriggerStats, err error) {
	err = c.get(ctx, nil, &stats, "events", "stats")
	return stats, err
}

// PurgeTriggers deletes the triggers that ended so many days ago, 0: all that have ended, and says how many; a dry run only says so. The count
// is that of the last request, where it is sent again.
func (c *Client) PurgeTriggers(ctx context.Context, olderThanDays int, dryRun bool) (count int, err error) {
	var purged api.Purged
	body := api.PurgeRequest{OlderThanDays: &olderThanDays, DryRun: dryRun}
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "events", "purge"}, body: body, again: true}, &purged)
	return purged.Count, err
}

// WatchTrigger yields the latest trigger of a key as it is, then as it has ended, and ends, or with an error. A stream that breaks is begun
// again; where the key is used again meanwhile, what it yields then is the next trigger, with another ID.
func (c *Client) WatchTrigger(ctx context.Context, key string) iter.Seq2[Trigger, error] {
	path := []string{"v1", "events", key, "stream"}
	return follow(ctx, c, path, func(Trigger) []string { return path })
}
