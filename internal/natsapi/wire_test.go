package natsapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/micro"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
)

// Whatever comes in, the answer is an error in the contract's form, with the headers of NATS services.
func testBadBodies(b *bundle) {
	for _, verb := range []string{natsapi.VerbStart, natsapi.VerbSignal, natsapi.VerbGet, natsapi.VerbList, natsapi.VerbMessage, natsapi.VerbRoutesTest} {
		for _, body := range []string{"\xff", "{", "[", `{"a": "` + "\xc3\x28" + `"}`, "nil", "7", `"x"`, `{"x": 1}`, `{"x": "\u0000"}`, strings.Repeat("[", 5000), `{} {}`, "[[]]", "[7]", "[null, 1]"} {
			reply := b.raw(verb, []byte(body))
			var e api.ErrorBody
			if err := json.Unmarshal(reply.Data, &e); err != nil || e.Error == nil || e.Error.Code != api.CodeInvalid || e.Error.Message == "" {
				b.Errorf("%s %.40q: %s", verb, body, reply.Data)
			}
			equal(b, verb+" "+body, reply.Header.Get(micro.ErrorCodeHeader)+reply.Header.Get(micro.ErrorHeader), "400invalid")
		}
	}
	reply := b.raw(natsapi.VerbList, nil)
	equal(b, "no body is no filter", reply.Header.Get(micro.ErrorCodeHeader), "")
	reply = b.raw(natsapi.VerbList, nil, subjects.HeaderProject, "\xff")
	equal(b, "bad project", reply.Header.Get(micro.ErrorCodeHeader), "400")
}

func testDiscovery(b *bundle) {
	reply, err := b.client.Conn.RequestWithContext(b.Context(), "$SRV.INFO."+subjects.Service, nil)
	if err != nil {
		b.Fatal(err)
	}
	var info micro.Info
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		b.Fatal(err)
	}
	found := map[string]bool{}
	for _, e := range info.Endpoints {
		found[e.Subject] = e.QueueGroup == subjects.Service
	}
	for _, verb := range []string{"start", "signal", "get", "events", "cancel", "retry", "pause", "resume"} {
		if !found["pointsman.api."+verb] {
			b.Errorf("%s is not there, or not shared: %+v", verb, info.Endpoints)
		}
	}
}

// What would not fit into one message comes page by page.
func testLargeAnswers(b *bundle) {
	p := bundle{b.T, b.stack, &natsapi.Client{Conn: b.client.Conn, Subjects: b.client.Subjects, Project: "large"}}
	state, err := json.Marshal(map[string]any{"amount": 1, "packed": []string{strings.Repeat("x", 300<<10)}})
	if err != nil {
		b.Fatal(err)
	}
	for range 5 {
		p.ask(natsapi.VerbStart, api.NewInstance{Machine: "order", State: state}, nil)
	}
	n := 0
	for r := (api.ListRequest{}); ; {
		var page api.Page[api.Instance]
		p.ask(natsapi.VerbList, r, &page)
		n += len(page.Items)
		if page.NextCursor == nil {
			break
		}
		r.Cursor = *page.NextCursor
	}
	equal(b, "all pages", n, 5)
	// An answer that cannot be cut is an error that says so.
	p.start("large")
	p.becomes("key:large", engine.StatusAwaiting)
	body := json.RawMessage(`"` + strings.Repeat("x", 900<<10) + `"`)
	p.ask(natsapi.VerbSignal, api.NewSignal{CorrelationKey: "large", Name: "blob", Payload: body}, nil)
	var page api.Page[api.Signal]
	p.ask(natsapi.VerbInbox, api.PageRequest{Ref: "key:large"}, &page)
	equal(b, "one large item", len(page.Items), 1)
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	client := &natsapi.Client{Conn: natstest.Start(t).Conn(t), Subjects: space}
	if err := client.Do(t.Context(), natsapi.VerbGet, api.GetRequest{}, nil); !errors.Is(err, natsapi.ErrNoService) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Do(ctx, natsapi.VerbGet, api.GetRequest{}, nil); err == nil {
		t.Error("no error of a canceled request")
	}
	big := api.NewSignal{Payload: json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)}
	var e *api.Error
	if err := client.Do(t.Context(), natsapi.VerbSignal, big, nil); !errors.As(err, &e) || e.Code != api.CodeTooLarge {
		t.Errorf("too large: %v", fmt.Sprint(err))
	}
}
