package contracttest

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// triggerDriver asks about triggers over one surface. ref is who waits, "" nobody.
type triggerDriver interface {
	createTrigger(ctx context.Context, ref string, n api.NewTrigger) (api.Trigger, error)
	sendEvent(ctx context.Context, key, payload string, hold time.Duration) (t api.Trigger, held bool, err error)
	sendPrefix(ctx context.Context, prefix, payload string) (int, error)
	cancelTrigger(ctx context.Context, key string) (api.Trigger, error)
	trigger(ctx context.Context, key string) (api.Trigger, error)
	triggers(ctx context.Context, r api.TriggersRequest) (api.Page[api.Trigger], error)
	triggerStats(ctx context.Context) (engine.TriggerStats, error)
	purge(ctx context.Context, olderThanDays int, dryRun bool) (int, error)
}

// sentOf reads the answer to an event.
func sentOf(answer json.RawMessage, err error) (t api.Trigger, held bool, _ error) {
	if err != nil {
		return t, false, err
	}
	var h api.HeldEvent
	if err := json.Unmarshal(answer, &h); err != nil || h.Result == "held" {
		return t, h.Result == "held", err
	}
	return t, false, json.Unmarshal(answer, &t)
}

func (d overHTTP) createTrigger(ctx context.Context, ref string, n api.NewTrigger) (api.Trigger, error) {
	if ref == "" {
		return d.CreateTrigger(ctx, n)
	}
	return d.WaitForEvent(ctx, client.ParseRef(ref), n)
}

func (d overHTTP) sendEvent(ctx context.Context, key, payload string, hold time.Duration) (t api.Trigger, held bool, err error) {
	sent, err := d.SendEvent(ctx, key, json.RawMessage(payload), hold)
	if err != nil || sent.Trigger == nil {
		return t, !sent.HeldUntil.IsZero(), err
	}
	return *sent.Trigger, false, nil
}

func (d overHTTP) sendPrefix(ctx context.Context, prefix, payload string) (int, error) {
	return d.SendEventPrefix(ctx, prefix, json.RawMessage(payload))
}

func (d overHTTP) cancelTrigger(ctx context.Context, key string) (api.Trigger, error) {
	return d.CancelTrigger(ctx, key)
}

func (d overHTTP) trigger(ctx context.Context, key string) (api.Trigger, error) {
	return d.Trigger(ctx, key)
}

func (d overHTTP) triggers(ctx context.Context, r api.TriggersRequest) (api.Page[api.Trigger], error) {
	return d.Triggers(ctx, r)
}

func (d overHTTP) triggerStats(ctx context.Context) (engine.TriggerStats, error) {
	return d.TriggerStats(ctx)
}

func (d overNATS) createTrigger(ctx context.Context, ref string, n api.NewTrigger) (api.Trigger, error) {
	if ref == "" {
		return ask[api.Trigger](ctx, d, natsapi.VerbTriggersCreate, n)
	}
	return ask[api.Trigger](ctx, d, natsapi.VerbTriggersWait, api.WaitRequest{Ref: ref, NewTrigger: n})
}

func (d overNATS) sendEvent(ctx context.Context, key, payload string, hold time.Duration) (api.Trigger, bool, error) {
	r := api.SendRequest{EventKey: key, Payload: json.RawMessage(payload)}
	if hold != 0 {
		r.Hold = hold.String()
	}
	return sentOf(ask[json.RawMessage](ctx, d, natsapi.VerbSend, r))
}

func (d overNATS) sendPrefix(ctx context.Context, prefix, payload string) (int, error) {
	sent, err := ask[api.SentToPrefix](ctx, d, natsapi.VerbTriggersPrefix, api.SendPrefixRequest{Prefix: prefix, Payload: json.RawMessage(payload)})
	return sent.Count, err
}

func (d overNATS) cancelTrigger(ctx context.Context, key string) (api.Trigger, error) {
	return ask[api.Trigger](ctx, d, natsapi.VerbTriggersCancel, api.TriggerRequest{EventKey: key})
}

func (d overNATS) trigger(ctx context.Context, key string) (api.Trigger, error) {
	return ask[api.Trigger](ctx, d, natsapi.VerbTrigger, api.TriggerRequest{EventKey: key})
}

func (d overNATS) triggers(ctx context.Context, r api.TriggersRequest) (api.Page[api.Trigger], error) {
	return ask[api.Page[api.Trigger]](ctx, d, natsapi.VerbTriggers, r)
}

func (d overNATS) triggerStats(ctx context.Context) (engine.TriggerStats, error) {
	return ask[engine.TriggerStats](ctx, d, natsapi.VerbTriggersStats, api.TriggerStatsRequest{})
}

func (d inGo) createTrigger(ctx context.Context, ref string, n api.NewTrigger) (api.Trigger, error) {
	w := engine.EventWait{Key: n.EventKey, NotifyURL: n.NotifyURL, RequestPayload: n.RequestPayload}
	if n.TimeoutSecs != nil {
		w.Timeout = time.Duration(*n.TimeoutSecs) * time.Second
	}
	if ref == "" {
		t, err := d.CreateTrigger(ctx, "", w)
		return api.Trigger(t), err
	}
	to, err := refOf(ref)
	if err != nil {
		return api.Trigger{}, err
	}
	t, err := d.WaitForEvent(ctx, to, w)
	return api.Trigger(t), err
}

func (d inGo) sendEvent(ctx context.Context, key, payload string, hold time.Duration) (t api.Trigger, held bool, err error) {
	r, err := d.SendEvent(ctx, engine.NewEvent{Key: key, Payload: json.RawMessage(payload), Hold: hold})
	if err != nil || r.Trigger == nil {
		return t, r.Result == engine.Held, err
	}
	return api.Trigger(*r.Trigger), false, nil
}

func (d inGo) sendPrefix(ctx context.Context, prefix, payload string) (int, error) {
	return d.SendEventPrefix(ctx, "", prefix, json.RawMessage(payload), "")
}

func (d inGo) cancelTrigger(ctx context.Context, key string) (api.Trigger, error) {
	t, err := d.CancelTrigger(ctx, "", key)
	return api.Trigger(t), err
}

func (d inGo) trigger(ctx context.Context, key string) (api.Trigger, error) {
	t, err := d.Trigger(ctx, "", key)
	return api.Trigger(t), err
}

func (d inGo) triggers(ctx context.Context, r api.TriggersRequest) (page api.Page[api.Trigger], err error) {
	f := engine.TriggerFilter{Status: engine.TriggerStatus(r.Status), Source: r.SourceType}
	if r.WorkflowRunID != "" {
		if f.InstanceID, err = uuid.Parse(r.WorkflowRunID); err != nil {
			return page, err
		}
	}
	rows, next, err := d.Triggers(ctx, f, placeOf(r.Cursor), cmp.Or(r.Limit, api.DefaultLimit))
	page.NextCursor = cursorOf(next)
	for _, row := range rows {
		page.Items = append(page.Items, api.Trigger(row))
	}
	return page, err
}

func (d inGo) triggerStats(ctx context.Context) (engine.TriggerStats, error) {
	return d.TriggerStats(ctx, "")
}

func (d onCommandLine) createTrigger(ctx context.Context, ref string, n api.NewTrigger) (api.Trigger, error) {
	args := []string{"--instance", ref, "--notify-url", n.NotifyURL, "--request", string(n.RequestPayload)}
	if n.TimeoutSecs != nil {
		args = append(args, "--timeout", (time.Duration(*n.TimeoutSecs) * time.Second).String())
	}
	return run[api.Trigger](ctx, d, "triggers create", append(args, "--", n.EventKey)...)
}

func (d onCommandLine) sendEvent(ctx context.Context, key, payload string, hold time.Duration) (api.Trigger, bool, error) {
	args := []string{"--", key, payload}
	if hold != 0 {
		args = append([]string{"--hold", hold.String()}, args...)
	}
	return sentOf(run[json.RawMessage](ctx, d, "triggers send", args...))
}

func (d onCommandLine) sendPrefix(ctx context.Context, prefix, payload string) (int, error) {
	sent, err := run[api.SentToPrefix](ctx, d, "triggers send", "--prefix", "--", prefix, payload)
	return sent.Count, err
}

func (d onCommandLine) cancelTrigger(ctx context.Context, key string) (api.Trigger, error) {
	return run[api.Trigger](ctx, d, "triggers cancel", "--", key)
}

func (d onCommandLine) trigger(ctx context.Context, key string) (api.Trigger, error) {
	return run[api.Trigger](ctx, d, "triggers get", "--", key)
}

func (d onCommandLine) triggers(ctx context.Context, r api.TriggersRequest) (api.Page[api.Trigger], error) {
	return run[api.Page[api.Trigger]](ctx, d, "triggers list", "--status", r.Status, "--source", r.SourceType, "--instance", r.WorkflowRunID,
		"--limit", limitOf(r.Limit), "--cursor", r.Cursor)
}

func (d onCommandLine) triggerStats(ctx context.Context) (engine.TriggerStats, error) {
	return run[engine.TriggerStats](ctx, d, "triggers stats")
}

func (d overHTTP) purge(ctx context.Context, olderThanDays int, dryRun bool) (int, error) {
	return d.PurgeTriggers(ctx, olderThanDays, dryRun)
}

func (d overNATS) purge(ctx context.Context, olderThanDays int, dryRun bool) (int, error) {
	purged, err := ask[api.Purged](ctx, d, natsapi.VerbTriggersPurge, api.PurgeRequest{OlderThanDays: &olderThanDays, DryRun: dryRun})
	return purged.Count, err
}

func (d inGo) purge(ctx context.Context, olderThanDays int, dryRun bool) (int, error) {
	return d.PurgeTriggers(ctx, "", time.Duration(olderThanDays)*24*time.Hour, dryRun)
}

func (d onCommandLine) purge(ctx context.Context, olderThanDays int, dryRun bool) (int, error) {
	purged, err := run[api.Purged](ctx, d, "triggers purge", "--older-than="+strconv.Itoa(olderThanDays), "--dry-run="+strconv.FormatBool(dryRun))
	return purged.Count, err
}
