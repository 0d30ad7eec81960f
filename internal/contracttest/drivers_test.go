package contracttest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/cli"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
)

// driver asks over one surface. ref is an id, or key:<correlation key>.
type driver interface {
	start(ctx context.Context, n api.NewInstance) (api.Instance, error)
	signal(ctx context.Context, ref, name, payload, dedupKey string) (api.Signaled, error)
	get(ctx context.Context, ref string) (api.Instance, error)
	wait(ctx context.Context, ref string) (api.Instance, error)
	list(ctx context.Context, r api.ListRequest) (api.Page[api.Instance], error)
	inbox(ctx context.Context, ref string) ([]api.Signal, error)
	history(ctx context.Context, ref string) ([]engine.Transition, error)
	event(ctx context.Context, ref, key string) (json.RawMessage, error)
	cancel(ctx context.Context, ref, reason string) (api.Instance, error)
	operate(ctx context.Context, verb, ref string) (api.Instance, error) // retry, pause, resume

	events(ctx context.Context, ref string) (map[string]json.RawMessage, error)
	update(ctx context.Context, ref, name, arg, idempotencyKey string, wait time.Duration) (api.Updated, error)
	children(ctx context.Context, ref string) ([]api.Instance, error)
	triggerDriver
	jobDriver
}

// code of an error, whichever surface it is from.
func code(err error) string {
	var refused *api.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &refused):
		return refused.Code
	default:
		return engine.Code(err)
	}
}

// holder is the instance that the details of an error name.
func holder(err error) string {
	var refused *api.Error
	var conflict *engine.ConflictError
	var gone *engine.NoTargetError
	switch {
	case errors.As(err, &refused):
		return fmt.Sprint(refused.Details["instance_id"])
	case errors.As(err, &conflict):
		return conflict.ID.String()
	case errors.As(err, &gone):
		return gone.Ended.ID.String()
	default:
		return "nobody"
	}
}

// overHTTP is package client.
type overHTTP struct{ *client.Client }

func newHTTP(t *testing.T, stack *apptest.Stack) driver {
	c, err := client.New(client.Config{URL: stack.HTTPURL})
	if err != nil {
		t.Fatal(err)
	}
	return overHTTP{c}
}

func (d overHTTP) start(ctx context.Context, n api.NewInstance) (api.Instance, error) {
	return d.Start(ctx, n)
}

func (d overHTTP) signal(ctx context.Context, ref, name, payload, dedupKey string) (api.Signaled, error) {
	return d.Signal(ctx, client.ParseRef(ref), name, json.RawMessage(payload), dedupKey)
}

func (d overHTTP) get(ctx context.Context, ref string) (api.Instance, error) {
	return d.Get(ctx, client.ParseRef(ref))
}

func (d overHTTP) wait(ctx context.Context, ref string) (api.Instance, error) {
	return d.Wait(ctx, client.ParseRef(ref))
}

func (d overHTTP) list(ctx context.Context, r api.ListRequest) (api.Page[api.Instance], error) {
	return d.List(ctx, r)
}

func (d overHTTP) inbox(ctx context.Context, ref string) ([]api.Signal, error) {
	page, err := d.Inbox(ctx, client.ParseRef(ref), "")
	return page.Items, err
}

func (d overHTTP) history(ctx context.Context, ref string) ([]engine.Transition, error) {
	page, err := d.History(ctx, client.ParseRef(ref), "")
	return page.Items, err
}

func (d overHTTP) event(ctx context.Context, ref, key string) (value json.RawMessage, err error) {
	err = d.Event(ctx, client.ParseRef(ref), key, &value)
	return value, err
}

func (d overHTTP) cancel(ctx context.Context, ref, reason string) (api.Instance, error) {
	return d.Cancel(ctx, client.ParseRef(ref), reason)
}

func (d overHTTP) operate(ctx context.Context, verb, ref string) (api.Instance, error) {
	do := map[string]func(context.Context, client.Ref) (client.Instance, error){"retry": d.Retry, "pause": d.Pause, "resume": d.Resume}[verb]
	return do(ctx, client.ParseRef(ref))
}

func (d overHTTP) events(ctx context.Context, ref string) (map[string]json.RawMessage, error) {
	return d.Events(ctx, client.ParseRef(ref))
}

func (d overHTTP) update(ctx context.Context, ref, name, arg, idempotencyKey string, wait time.Duration) (api.Updated, error) {
	return d.Update(ctx, client.ParseRef(ref), client.NewUpdate{Name: name, Arg: json.RawMessage(arg), IdempotencyKey: idempotencyKey, Wait: wait})
}

func (d overHTTP) children(ctx context.Context, ref string) ([]api.Instance, error) {
	page, err := d.Children(ctx, client.ParseRef(ref), "")
	return page.Items, err
}

// overNATS is the micro service.
type overNATS struct{ client natsapi.Client }

func newNATS(t *testing.T, stack *apptest.Stack) driver {
	return overNATS{natsapi.Client{Conn: stack.NATS.Conn(t), Subjects: stack.Space}}
}

func ask[T any](ctx context.Context, d overNATS, verb string, request any, headers ...string) (answer T, err error) {
	err = d.client.Do(ctx, verb, request, &answer, headers...)
	return answer, err
}

func (d overNATS) start(ctx context.Context, n api.NewInstance) (api.Instance, error) {
	key := n.DedupKey
	n.DedupKey = ""
	return ask[api.Instance](ctx, d, natsapi.VerbStart, n, subjects.HeaderIdempotencyKey, key)
}

func (d overNATS) signal(ctx context.Context, ref, name, payload, dedupKey string) (api.Signaled, error) {
	s := api.NewSignal{InstanceID: ref, Name: name, Payload: json.RawMessage(payload), DedupKey: dedupKey}
	if key, ok := strings.CutPrefix(ref, "key:"); ok {
		s.InstanceID, s.CorrelationKey = "", key
	}
	return ask[api.Signaled](ctx, d, natsapi.VerbSignal, s)
}

func (d overNATS) get(ctx context.Context, ref string) (api.Instance, error) {
	return ask[api.Instance](ctx, d, natsapi.VerbGet, api.GetRequest{Ref: ref})
}

func (d overNATS) wait(ctx context.Context, ref string) (api.Instance, error) {
	return ask[api.Instance](ctx, d, natsapi.VerbGet, api.GetRequest{Ref: ref, Wait: "60s"})
}

func (d overNATS) list(ctx context.Context, r api.ListRequest) (api.Page[api.Instance], error) {
	return ask[api.Page[api.Instance]](ctx, d, natsapi.VerbList, r)
}

func (d overNATS) inbox(ctx context.Context, ref string) ([]api.Signal, error) {
	page, err := ask[api.Page[api.Signal]](ctx, d, natsapi.VerbInbox, api.PageRequest{Ref: ref})
	return page.Items, err
}

func (d overNATS) history(ctx context.Context, ref string) ([]engine.Transition, error) {
	page, err := ask[api.Page[engine.Transition]](ctx, d, natsapi.VerbHistory, api.PageRequest{Ref: ref})
	return page.Items, err
}

func (d overNATS) event(ctx context.Context, ref, key string) (json.RawMessage, error) {
	return ask[json.RawMessage](ctx, d, natsapi.VerbEvents, api.EventsRequest{Ref: ref, Key: key})
}

func (d overNATS) cancel(ctx context.Context, ref, reason string) (api.Instance, error) {
	return ask[api.Instance](ctx, d, natsapi.VerbCancel, api.CancelRequest{Ref: ref, Reason: reason})
}

func (d overNATS) operate(ctx context.Context, verb, ref string) (api.Instance, error) {
	return ask[api.Instance](ctx, d, verb, api.RefRequest{Ref: ref})
}

func (d overNATS) events(ctx context.Context, ref string) (map[string]json.RawMessage, error) {
	return ask[map[string]json.RawMessage](ctx, d, natsapi.VerbEvents, api.EventsRequest{Ref: ref})
}

func (d overNATS) update(ctx context.Context, ref, name, arg, idempotencyKey string, wait time.Duration) (api.Updated, error) {
	return ask[api.Updated](ctx, d, natsapi.VerbUpdate, api.UpdateRequest{Ref: ref, Name: name, Arg: json.RawMessage(arg), IdempotencyKey: idempotencyKey, Wait: wait.String()})
}

func (d overNATS) children(ctx context.Context, ref string) ([]api.Instance, error) {
	page, err := ask[api.Page[api.Instance]](ctx, d, natsapi.VerbChildren, api.PageRequest{Ref: ref})
	return page.Items, err
}

// inGo is package engine.
type inGo struct{ *engine.Client }

func newGo(t *testing.T, stack *apptest.Stack) driver {
	db, err := engine.Connect(t.Context(), stack.DatabaseURL, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	c, err := engine.NewClient(db, engine.Config{})
	if err == nil {
		err = errors.Join(c.Validate("decider", "decide", judge), c.Validate("decider", "broken", broken)) // as the worker does: this client cannot ask it
	}
	if err != nil {
		t.Fatal(err)
	}
	return inGo{c}
}

// shown is an instance as the other surfaces show it.
func shown(in engine.Instance, err error) (out api.Instance, _ error) {
	if err != nil {
		return out, err
	}
	text, err := json.Marshal(in)
	return out, errors.Join(err, json.Unmarshal(text, &out))
}

func refOf(ref string) (engine.Ref, error) {
	if key, ok := strings.CutPrefix(ref, "key:"); ok {
		return engine.ByKey("", key), nil
	}
	id, err := uuid.Parse(ref)
	if err != nil {
		return engine.Ref{}, &engine.InvalidError{Field: "ref", Reason: err.Error()} // who writes Go has a UUID
	}
	return engine.ByID(id), nil
}

func (d inGo) id(ctx context.Context, ref string) (uuid.UUID, error) {
	in, err := d.get(ctx, ref)
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.Parse(in.ID)
}

func (d inGo) start(ctx context.Context, n api.NewInstance) (api.Instance, error) {
	return shown(d.Start(ctx, engine.NewInstance{
		Machine: n.Machine, Version: n.Version, CorrelationKey: n.CorrelationKey, State: n.State, Queue: n.Queue, DedupKey: n.DedupKey, UniqueKey: n.UniqueKey,
	}))
}

func (d inGo) signal(ctx context.Context, ref, name, payload, dedupKey string) (api.Signaled, error) {
	to, err := refOf(ref)
	if err != nil {
		return api.Signaled{}, err
	}
	r, err := d.Signal(ctx, to, engine.Signal{Name: name, Payload: json.RawMessage(payload), DedupKey: dedupKey})
	return api.Signaled{SignalID: &r.SignalID, InstanceID: r.InstanceID.String(), Result: string(r.Result)}, err
}

func (d inGo) get(ctx context.Context, ref string) (api.Instance, error) {
	to, err := refOf(ref)
	if err != nil {
		return api.Instance{}, err
	}
	return shown(d.Get(ctx, to))
}

func (d inGo) wait(ctx context.Context, ref string) (api.Instance, error) {
	to, err := refOf(ref)
	if err != nil {
		return api.Instance{}, err
	}
	return shown(d.Wait(ctx, to))
}

func (d inGo) list(ctx context.Context, r api.ListRequest) (page api.Page[api.Instance], err error) {
	f := engine.Filter{Machine: r.Machine, Status: r.Status, Queue: r.Queue, CorrelationKey: r.CorrelationKey, CorrelationPrefix: r.CorrelationPrefix}
	rows, next, err := d.List(ctx, f, placeOf(r.Cursor), cmp.Or(r.Limit, api.DefaultLimit))
	page.NextCursor = cursorOf(next)
	for _, row := range rows {
		in, e := shown(row, nil)
		page.Items, err = append(page.Items, in), errors.Join(err, e)
	}
	return page, err
}

// placeOf and cursorOf are what a cursor is in Go: the id of the last item.
func placeOf(cursor string) uuid.UUID {
	id, _ := uuid.Parse(cursor) // "" is none
	return id
}

func cursorOf(next uuid.UUID) *string {
	if next == uuid.Nil {
		return nil
	}
	text := next.String()
	return &text
}

func (d inGo) inbox(ctx context.Context, ref string) (out []api.Signal, err error) {
	id, err := d.id(ctx, ref)
	if err != nil {
		return nil, err
	}
	signals, err := d.Inbox(ctx, id, 0, api.DefaultLimit)
	for _, s := range signals {
		out = append(out, api.Signal{ID: s.ID, Kind: s.Kind, Name: s.Name, Payload: s.Payload})
	}
	return out, err
}

func (d inGo) history(ctx context.Context, ref string) ([]engine.Transition, error) {
	id, err := d.id(ctx, ref)
	if err != nil {
		return nil, err
	}
	return d.History(ctx, id, engine.Transition{}, api.DefaultLimit)
}

func (d inGo) event(ctx context.Context, ref, key string) (json.RawMessage, error) {
	id, err := d.id(ctx, ref)
	if err != nil {
		return nil, err
	}
	return d.Event(ctx, id, key)
}

func (d inGo) cancel(ctx context.Context, ref, reason string) (api.Instance, error) {
	to, err := refOf(ref)
	if err != nil {
		return api.Instance{}, err
	}
	return shown(d.Cancel(ctx, to, reason))
}

func (d inGo) operate(ctx context.Context, verb, ref string) (api.Instance, error) {
	to, err := refOf(ref)
	if err != nil {
		return api.Instance{}, err
	}
	return shown(map[string]func(context.Context, engine.Ref) (engine.Instance, error){"retry": d.Retry, "pause": d.Pause, "resume": d.Resume}[verb](ctx, to))
}

func (d inGo) events(ctx context.Context, ref string) (map[string]json.RawMessage, error) {
	id, err := d.id(ctx, ref)
	if err != nil {
		return nil, err
	}
	return d.Events(ctx, id)
}

func (d inGo) update(ctx context.Context, ref, name, arg, idempotencyKey string, wait time.Duration) (out api.Updated, err error) {
	to, err := refOf(ref)
	if err != nil {
		return out, err
	}
	done, err := d.Update(ctx, to, engine.UpdateRequest{Name: name, Arg: json.RawMessage(arg), IdempotencyKey: idempotencyKey, Wait: wait})
	out.Accepted, out.Reason = done.Accepted, done.Reason
	if err == nil && done.Run != nil {
		var run api.Instance
		run, err = shown(*done.Run, nil)
		out.Run = &run
	}
	return out, err
}

func (d inGo) children(ctx context.Context, ref string) (out []api.Instance, err error) {
	id, err := d.id(ctx, ref)
	if err != nil {
		return nil, err
	}
	rows, err := d.Children(ctx, id, uuid.Nil, api.DefaultLimit)
	for _, row := range rows {
		in, e := shown(row, nil)
		out, err = append(out, in), errors.Join(err, e)
	}
	return out, err
}

// onCommandLine is pointsman with --json.
type onCommandLine struct{ where []string }

func newCommandLine(_ *testing.T, stack *apptest.Stack) driver {
	return onCommandLine{[]string{"--nats-url", stack.NATSURL}}
}

func newCommandLineOverHTTP(_ *testing.T, stack *apptest.Stack) driver {
	return onCommandLine{[]string{"--url", stack.HTTPURL}}
}

// run a command, as "get" or "triggers get", and read what it prints. What it refuses before it asks is invalid.
func run[T any](ctx context.Context, d onCommandLine, command string, args ...string) (answer T, err error) {
	out, err := d.output(ctx, command, args...)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return answer, fmt.Errorf("%w: %s", err, out)
	}
	return answer, nil
}

func (d onCommandLine) output(ctx context.Context, command string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	root := cli.Pointsman()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(slices.Concat(strings.Fields(command), []string{"--json"}, d.where, args))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return out.Bytes(), nil
	}
	var b api.ErrorBody
	if json.Unmarshal([]byte(err.Error()), &b) == nil && b.Error != nil {
		return out.Bytes(), b.Error
	}
	return out.Bytes(), &api.Error{Code: api.CodeInvalid, Message: err.Error()}
}

func (d onCommandLine) start(ctx context.Context, n api.NewInstance) (api.Instance, error) {
	args := []string{"--key", n.CorrelationKey, "--unique-key", n.UniqueKey, "--idempotency-key", n.DedupKey, "--queue", n.Queue, "--", n.Machine}
	if n.State != nil {
		args = append(args, string(n.State))
	}
	return run[api.Instance](ctx, d, "start", args...)
}

func (d onCommandLine) signal(ctx context.Context, ref, name, payload, dedupKey string) (api.Signaled, error) {
	return run[api.Signaled](ctx, d, "signal", "--dedup-key", dedupKey, "--", ref, name, payload)
}

func (d onCommandLine) get(ctx context.Context, ref string) (api.Instance, error) {
	return run[api.Instance](ctx, d, "get", "--", ref)
}

func (d onCommandLine) wait(ctx context.Context, ref string) (api.Instance, error) {
	return run[api.Instance](ctx, d, "get", "--wait", "60s", "--", ref)
}

func (d onCommandLine) list(ctx context.Context, r api.ListRequest) (api.Page[api.Instance], error) {
	return run[api.Page[api.Instance]](ctx, d, "list", "--prefix", r.CorrelationPrefix, "--status", string(r.Status), "--machine", r.Machine,
		"--limit", limitOf(r.Limit), "--cursor", r.Cursor)
}

func limitOf(n int) string { return strconv.Itoa(cmp.Or(n, api.DefaultLimit)) }

func (d onCommandLine) inbox(ctx context.Context, ref string) ([]api.Signal, error) {
	page, err := run[api.Page[api.Signal]](ctx, d, "inbox", "--", ref)
	return page.Items, err
}

func (d onCommandLine) history(ctx context.Context, ref string) ([]engine.Transition, error) {
	page, err := run[api.Page[engine.Transition]](ctx, d, "history", "--", ref)
	return page.Items, err
}

func (d onCommandLine) event(ctx context.Context, ref, key string) (json.RawMessage, error) {
	return run[json.RawMessage](ctx, d, "events", "--", ref, key)
}

func (d onCommandLine) cancel(ctx context.Context, ref, reason string) (api.Instance, error) {
	return run[api.Instance](ctx, d, "cancel", "--reason", reason, "--", ref)
}

func (d onCommandLine) operate(ctx context.Context, verb, ref string) (api.Instance, error) {
	return run[api.Instance](ctx, d, verb, "--", ref)
}

func (d onCommandLine) events(ctx context.Context, ref string) (map[string]json.RawMessage, error) {
	return run[map[string]json.RawMessage](ctx, d, "events", "--", ref)
}

// update is an error where it is refused, after the verdict.
func (d onCommandLine) update(ctx context.Context, ref, name, arg, idempotencyKey string, wait time.Duration) (verdict api.Updated, err error) {
	out, err := d.output(ctx, "update", "--idempotency-key", idempotencyKey, "--wait", wait.String(), "--", ref, name, arg)
	if len(out) == 0 {
		return verdict, err
	}
	if e := json.Unmarshal(out, &verdict); e != nil || verdict.Accepted != (err == nil) {
		return verdict, fmt.Errorf("%w, %w: %s", e, err, out)
	}
	return verdict, nil
}

func (d onCommandLine) children(ctx context.Context, ref string) ([]api.Instance, error) {
	page, err := run[api.Page[api.Instance]](ctx, d, "children", "--", ref)
	return page.Items, err
}
