package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
)

const auditRoutes = `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: waits}}
  - {name: items, stream: ORDERS, subject: orders.*.item, when: "!has(payload.free)", correlation_key: "{{subject[1]}}", signal: item, dedup_key: "{{payload.id}}"}
  - {name: brief, stream: ORDERS, subject: orders.*.brief, correlation_key: "{{subject[1]}}", signal: brief}
  - {name: notes, stream: ORDERS, subject: orders.*.note, correlation_key: "{{subject[1]}}", signal: note, on_missing: drop}
  - {name: idle, stream: ORDERS, subject: orders.*.idle, correlation_key: "{{subject[1]}}", signal: item, paused: true}
`

// waits takes items one by one, for ever, and leaves notes in its inbox.
func waits(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[struct{}]{Name: "waits", Start: "begin", Steps: map[string]engine.Step[struct{}]{
		"begin": func(context.Context, *engine.Visit[struct{}]) (engine.Outcome, error) {
			return engine.Await("begin", "item"), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

type audited struct {
	*testing.T
	stack *apptest.Stack
}

func (a audited) acked(route string, floor uint64) {
	a.Helper()
	apptest.Eventually(a, route+" has acked all", func() (bool, error) {
		c, err := a.stack.JS.Consumer(a.Context(), "ORDERS", "pointsman-"+route)
		if err != nil {
			return false, err
		}
		info := c.CachedInfo()
		return info.Delivered.Stream >= floor && info.NumAckPending == 0 && info.NumPending == 0, fmt.Errorf("%+v", info.Delivered)
	})
}

// audit a route, and return what became of its messages, and the sequences that speak against the bridge.
func (a audited) audit(route string) (fates, found string, result bridge.Audit) {
	a.Helper()
	seqs := []uint64{}
	result, err := app.Audit(a.Context(), a.stack.Config, a.stack.NATS.Conn(a), bridge.AuditRequest{Route: route, Found: func(f bridge.Finding) {
		seqs = append(seqs, f.Seq)
	}})
	if err != nil {
		a.Fatal(err)
	}
	if result.OK() != (len(seqs) == 0) {
		a.Errorf("ok: %t, found: %v", result.OK(), seqs)
	}
	return fmt.Sprint(result.Fates), fmt.Sprint(seqs), result
}

func TestAudit(t *testing.T) {
	t.Parallel()
	a := audited{t, apptest.Start(t, auditRoutes, map[string][]string{"ORDERS": {"orders.>"}}, waits(t))}
	db, err := pgx.Connect(t.Context(), a.stack.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	publish := func(subject, body string) uint64 { return a.stack.Publish(t, subject, body).Sequence }
	exec := func(sql string) {
		t.Helper()
		if tag, err := db.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	}

	a.acked("placed", publish("orders.k.placed", "{}"))
	note := publish("orders.k.note", `{}`)
	publish("orders.k.item", `{"id": "1"}`)
	unledgered := publish("orders.k.item", `{"id": "2"}`)
	publish("orders.k.item", `{"id": "1"}`)
	publish("orders.k.item", `{"id": "1", "other": 1}`)
	publish("orders.k.item", `{"id": "3", "free": true}`)
	publish("orders.k.item", `{"id": `)
	a.acked("items", publish("orders.nobody.item", `{"id": "4"}`))
	a.acked("notes", publish("orders.nobody.note", "{}"))
	a.acked("brief", publish("orders.nobody.brief", "{}"))
	idle := publish("orders.k.idle", "{}")

	for route, want := range map[string]string{
		"placed": "map[started:1]", "items": "map[conflict:1 dead-lettered:1 delivered:2 duplicate:1 filtered:1 held:1]",
		"notes": "map[delivered:1 dropped:1]", "idle": "map[]",
	} {
		if fates, found, result := a.audit(route); fates != want || found != "[]" || route == "idle" && result.Pending != 1 {
			t.Errorf("%s: %s, want %s; found %s; %d pending", route, fates, want, found, result.Pending)
		}
	}
	exec(`update pointsman.held set expires_at = now() where name = 'brief'`)
	// An expired hold has one fate on all of its way: the hold, the outbox, the dead letters.
	apptest.Eventually(t, "its dead letter", func() (bool, error) {
		fates, found, _ := a.audit("brief")
		if found != "[]" {
			t.Fatalf("brief: %s, found %s", fates, found)
		}
		return fates == "map[dead-lettered:1]", fmt.Errorf("%s", fates)
	})

	// What an operator dropped is not missed, also where the route would take it in by now. A dead letter that went another way is not
	// taken for it.
	drop := func(route string) {
		t.Helper()
		client := natsapi.Client{Conn: a.stack.NATS.Conn(t), Subjects: a.stack.Space}
		var page api.Page[api.LetterResult]
		if err := client.Do(t.Context(), natsapi.VerbDrop, api.LettersChoice{Route: route}, &page); err != nil || len(page.Items) == 0 {
			t.Fatal(page, err)
		}
	}
	a.acked("placed", publish("orders.nobody.placed", "{}"))
	letters, err := a.stack.JS.Stream(t.Context(), a.stack.Space.DeadLettersStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := letters.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	drop("items")
	drop("brief")
	for route, want := range map[string]string{"items": "map[delivered:3 duplicate:1 filtered:1 letter-dropped:1 letter-gone:1]", "brief": "map[letter-dropped:1]"} {
		if fates, found, _ := a.audit(route); fates != want || found != "[]" {
			t.Errorf("%s: %s, want %s; found %s", route, fates, want, found)
		}
	}

	// What the ledger, the inbox or the consumer was robbed of is found.
	exec(`delete from pointsman.ledger l using pointsman.instances i where l.instance_id = i.id and i.correlation_key = 'k' and l.dedup = encode(substr(sha256('2'), 1, 16), 'hex')::uuid`)
	if fates, found, _ := a.audit("items"); found != fmt.Sprintf("[%d]", unledgered) {
		t.Errorf("without a row of the ledger: %s, found %s", fates, found)
	}
	exec(`delete from pointsman.signals where name = 'note'`)
	if fates, found, _ := a.audit("notes"); found != fmt.Sprintf("[%d]", note) {
		t.Errorf("without a signal: %s, found %s", fates, found)
	}
	c, err := a.stack.JS.Consumer(t.Context(), "ORDERS", "pointsman-idle")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(20 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fates, found, _ := a.audit("idle"); found != fmt.Sprintf("[%d]", idle) {
		t.Errorf("acked by a stranger: %s, found %s", fates, found)
	}
}
