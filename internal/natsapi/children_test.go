package natsapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// family is a machine of which each instance starts two children, so many levels down, and waits for them.
func family(t *testing.T) *engine.Machine {
	t.Helper()
	type state struct {
		Depth int `json:"depth"`
	}
	machine, err := engine.Define(engine.Definition[state]{Name: "family", Start: "begin", Steps: map[string]engine.Step[state]{
		"begin": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
			if v.State.Depth == 0 {
				return engine.Await("begin", "never"), nil
			}
			child := engine.NewInstance{Machine: "family", State: engine.MustJSON(state{v.State.Depth - 1})}
			return engine.Await("end").OrChildren(engine.AllChildren).StartChild(child).StartChild(child), nil
		},
		"end": func(context.Context, *engine.Visit[state]) (engine.Outcome, error) { return engine.Done(nil), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// Children are listed in pages, know their parent, and are canceled with it where that is asked for.
func testChildren(b *bundle) {
	var root api.Instance
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "family", CorrelationKey: "family", State: json.RawMessage(`{"depth": 2}`)}, &root)
	waiting := b.becomes(root.ID, engine.StatusAwaiting)
	equal(b, "awaits", fmt.Sprint(waiting.Awaits), "[all children]")
	equal(b, "has a parent", waiting.ParentID != nil, false)
	var first, second api.Page[api.Instance]
	b.ask(natsapi.VerbChildren, api.PageRequest{Ref: "key:family", Limit: 1}, &first)
	b.ask(natsapi.VerbChildren, api.PageRequest{Ref: root.ID, Limit: 1, Cursor: *first.NextCursor}, &second)
	equal(b, "pages", len(first.Items) == 1 && len(second.Items) == 1 && second.NextCursor == nil && first.Items[0].ID < second.Items[0].ID, true)
	equal(b, "parent", text(second.Items[0].ParentID), root.ID)
	b.becomes(second.Items[0].ID, engine.StatusAwaiting)
	var below api.Page[api.Instance]
	b.ask(natsapi.VerbChildren, api.PageRequest{Ref: second.Items[0].ID}, &below)
	equal(b, "below", len(below.Items), 2)

	var canceled api.Instance
	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: second.Items[0].ID}, &canceled)
	equal(b, "a grandchild goes on", b.get(below.Items[0].ID).Status.Live(), true)
	var inbox api.Page[api.Signal]
	b.ask(natsapi.VerbInbox, api.PageRequest{Ref: root.ID}, &inbox)
	equal(b, "told", inbox.Items[0].Kind+" "+inbox.Items[0].Name, "child "+canceled.ID)
	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: root.ID, Children: true}, &canceled)
	equal(b, "canceled", canceled.ID+string(canceled.Status), root.ID+"canceled")
	for _, id := range []string{first.Items[0].ID, below.Items[0].ID, below.Items[1].ID} {
		equal(b, "canceled with it", b.get(id).Status, engine.StatusCanceled)
	}
	_ = b.refused(api.CodeNotFound, natsapi.VerbChildren, api.PageRequest{Ref: uuid.NewString()})
	_ = b.refused(api.CodeInvalid, natsapi.VerbChildren, api.PageRequest{Ref: root.ID, Cursor: "x"})
}
