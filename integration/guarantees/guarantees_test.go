package guarantees

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/cluster"
	"github.com/pointsman/pointsman/integration/oracle"
	"github.com/pointsman/pointsman/integration/stories"
)

// The guarantees of the contract's section 8, each under the faults that threaten it.

// TestGuarantee1_WhatIsAckedIsSomewhere: first at the instant: bridges and database are killed in the middle of an intake, and what was acked by then
// is in an inbox, in the hold or in the dead letters, with no bridge there to mend anything. Then over time: whatever is published while bridges,
// database and NATS are killed and cut off has its fate in the end.
func TestGuarantee1_WhatIsAckedIsSomewhere(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 1}, "pack", "garbage", "probe")
	heals := []func(){a.fault(a.Kill(a.ctx, a.Workers()[0]))} // what is started stays in its inbox
	a.hoard(orLess(3000))
	for _, b := range a.Bridges() {
		heals = append(heals, a.fault(a.Kill(a.ctx, b)))
	}
	a.during(a.Kill(a.ctx, a.Primary()))(func() {})
	a.ackedIsStored()
	for _, heal := range heals {
		heal()
	}
	end := a.begin()
	a.played(20)
	a.during(a.Kill(a.ctx, a.Bridges()[0]))(func() { a.played(5) })
	a.during(a.Kill(a.ctx, a.Primary()))(func() {})
	a.during(a.Refuse(a.ctx, a.Bridges()[1], a.Database()...))(func() { a.played(5) })
	a.during(a.Kill(a.ctx, a.NATS()[0]))(func() {})
	a.during(a.Cut(a.ctx, a.Bridges()[0], a.NATS()...))(a.while(time.Second))
	a.played(20)
	end()
	a.settled()
}

// hoard publishes numbered messages for a key that nobody has ever, so that each is held, and returns when the bridges are at it.
func (a *arena) hoard(n int) {
	a.Helper()
	var last jetstream.PubAckFuture
	for i := range n {
		msg := nats.NewMsg("stories.pack.hoard.item")
		event := fmt.Sprintf("hoard/%d", i)
		msg.Data = fmt.Appendf(nil, `{"event": %q}`, event)
		msg.Header.Set(oracle.HeaderEvent, event)
		msg.Header.Set(nats.MsgIdHdr, event)
		a.account.Expect(oracle.Event{ID: event, Key: "pack-hoard", Name: "item", Want: oracle.Filtered}) // it is never seen
		var err error
		last, err = a.js.PublishMsgAsync(msg)
		a.must(err)
	}
	select {
	case <-last.Ok():
	case err := <-last.Err():
		a.Fatal(err)
	case <-time.After(patience):
		a.Fatal("no ack of a publication")
	}
	a.eventually("the bridges are at it", func(ctx context.Context) error {
		c, err := a.js.Consumer(ctx, stories.Stream, "pointsman-pack")
		if err != nil {
			return err
		}
		if floor := c.CachedInfo().AckFloor.Stream; floor < uint64(n/10) {
			return fmt.Errorf("%d are acked", floor)
		}
		return nil
	})
}

// ackedIsStored looks up what the consumer has acked without a bridge.
func (a *arena) ackedIsStored() {
	a.Helper()
	held := map[string]bool{}
	a.eventually("the database answers", func(ctx context.Context) error {
		rows, err := a.db.Query(ctx, `select payload->>'event' from pointsman.held`)
		if err != nil {
			return err
		}
		events, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, e := range events {
			held[e] = true
		}
		return err
	})
	c, err := a.js.Consumer(a.ctx, stories.Stream, "pointsman-pack")
	a.must(err)
	floor := c.CachedInfo().AckFloor.Stream
	stream, err := a.js.Stream(a.ctx, stories.Stream)
	a.must(err)
	acked := 0
	for seq := uint64(1); seq <= floor; seq++ {
		m, err := stream.GetMsg(a.ctx, seq)
		a.must(err)
		if event := m.Header.Get(oracle.HeaderEvent); !held[event] {
			a.Errorf("%s was acked as number %d, and is nowhere", event, seq)
		}
		acked++
	}
	a.Logf("%d messages were acked, %d are held", acked, len(held))
	if acked == 0 {
		a.Error("nothing was acked")
	}
}

// TestGuarantee2_OneOfEachDedupKey: messages come again inside and outside of the window of their stream, after they were consumed and after the
// end; starts are asked for again; bridges die between commit and ack; a consumer is deleted; and in the end all routes read their streams again
// from the beginning.
func TestGuarantee2_OneOfEachDedupKey(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 2}, "pack", "ticks", "family", "lanes", "probe")
	end := a.begin()
	a.played(20)
	a.during(a.Kill(a.ctx, a.Bridges()[0]))(func() { a.played(5) })
	a.must(a.js.DeleteConsumer(a.ctx, stories.Stream, "pointsman-pack"))
	a.during(a.Kill(a.ctx, a.Bridges()[1]))(func() { a.played(5) })
	a.played(20)
	end()
	a.settled()
	before := a.account.Count()
	for route, stream := range map[string]string{"pack": stories.Stream, "pack-start": stories.Stream, "family": stories.Stream, "probe": stories.Stream, "ticks": stories.OrderedStream} {
		a.rewind(route, stream)
	}
	a.settled()
	after := a.account.Count()
	if before.Records != after.Records || before.Instances != after.Instances || before.Outcomes != after.Outcomes {
		t.Errorf("before all was read again %+v, after it %+v", before, after)
	}
}

// rewind a route to the beginning of its stream, and wait until it has read all of it again, with a consumer that has begun anew.
func (a *arena) rewind(route, stream string) {
	a.Helper()
	info := func(ctx context.Context) (*jetstream.ConsumerInfo, error) {
		c, err := a.js.Consumer(ctx, stream, "pointsman-"+route)
		if err != nil {
			return nil, err
		}
		return c.CachedInfo(), nil
	}
	before, err := info(a.ctx)
	a.must(err)
	a.eventually("a rewind of "+route, func(ctx context.Context) error {
		_, err := a.ask(ctx, "routes-rewind", map[string]any{"name": route, "to_seq": 1})
		return err
	})
	a.eventually(route+" reads its stream again", func(ctx context.Context) error {
		now, err := info(ctx)
		if err != nil {
			return err
		}
		if now.Created.Equal(before.Created) || now.NumPending+uint64(now.NumAckPending) > 0 || now.Delivered.Consumer == 0 {
			return fmt.Errorf("made %s, then %s; %d pending, %d to ack", before.Created, now.Created, now.NumPending, now.NumAckPending)
		}
		return nil
	})
}

// ask makes a request of the NATS API.
func (a *arena) ask(ctx context.Context, verb string, request any) (json.RawMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reply, err := a.nc.RequestWithContext(ctx, "pointsman.api."+verb, body)
	if err != nil {
		return nil, err
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return reply.Data, fmt.Errorf("%s: %s: %s", verb, code, reply.Data)
	}
	return reply.Data, nil
}

// TestGuarantee3_NoParkedInstanceSleepsOnItsSignal: signals meet instances that park, under everything that may come between a delivery, a park
// and a wake: workers that die or stand still, a database that crashes, pokes that are lost with their NATS server.
func TestGuarantee3_NoParkedInstanceSleepsOnItsSignal(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 2}, "pack", "ticks", "family", "brood", "deadline")
	end := a.begin()
	a.played(10)
	a.during(a.Kill(a.ctx, a.Workers()[0]))(func() { a.played(5) })
	a.during(a.Pause(a.ctx, a.Workers()[1]))(a.while(4 * time.Second))
	a.during(a.Kill(a.ctx, a.Primary()))(func() {})
	a.played(5)
	a.during(a.Kill(a.ctx, a.NATS()[0]))(func() {})
	a.during(a.Refuse(a.ctx, a.Workers()[0], a.NATS()...))(func() { a.played(5) })
	a.played(10)
	end()
	a.settled()
}

// TestGuarantee4_StateSignalsAndEffectsCommitTogether: workers lose their leases while steps run: they stand still, are cut off from the database, or
// die, and come back to commit. The chains of records tell a commit that should not count, and one of which a part is missing.
func TestGuarantee4_StateSignalsAndEffectsCommitTogether(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 1, Workers: 2}, "slow", "ticks", "family", "brood", "lanes")
	end := a.begin()
	a.played(10)
	pastTheLease := a.while(4 * time.Second)
	a.during(a.Pause(a.ctx, a.Workers()[0]))(pastTheLease)
	a.during(a.Cut(a.ctx, a.Workers()[1], a.Database()...))(pastTheLease)
	a.during(a.Kill(a.ctx, a.Workers()[0]))(func() {})
	a.during(a.Kill(a.ctx, a.Primary()))(func() {})
	a.during(a.Pause(a.ctx, a.Workers()[1]))(pastTheLease)
	a.played(10)
	end()
	a.settled()
}

// TestGuarantee5_EachEndIsTold: relays die between publishing and forgetting, do not hear the acks, and meet a stream that is full. Whatever is
// published again has the id that it had.
func TestGuarantee5_EachEndIsTold(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 1}, "probe", "deadline", "family")
	end := a.begin()
	a.played(30)
	for _, b := range a.Bridges() {
		a.during(a.Kill(a.ctx, b))(func() { a.played(20) })
	}
	a.during(a.Slow(a.ctx, 50*time.Millisecond, a.Bridges()[0], a.NATS()...))(func() { a.during(a.Kill(a.ctx, a.Bridges()[1]))(func() { a.played(20) }) })
	a.during(a.Refuse(a.ctx, a.Bridges()[0], a.NATS()...))(func() { a.played(20) })
	a.during(a.Fill(a.ctx, "POINTSMAN_OUTCOMES"))(func() { a.while(time.Second)() })
	a.during(a.Kill(a.ctx, a.NATS()[0]))(func() {})
	a.played(20)
	end()
	a.settled()
}

// TestGuarantee6_OrderedSignalsStandInStreamOrder: the bridge that reads the ordered route is killed, stands still until another has taken over and
// goes on then, and loses its database.
func TestGuarantee6_OrderedSignalsStandInStreamOrder(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 1}, "ticks")
	a.workload.Players = 12
	end := a.begin()
	a.played(5)
	for _, b := range a.Bridges() { // one of them is the active one
		a.during(a.Kill(a.ctx, b))(func() {})
		a.played(12)
	}
	for _, b := range a.Bridges() {
		a.during(a.Pause(a.ctx, b))(func() { a.played(12) })
	}
	for _, b := range a.Bridges() {
		a.during(a.Refuse(a.ctx, b, a.Database()...))(func() { a.played(12) })
	}
	a.played(12)
	end()
	a.settled()
}

// TestGuarantee7_KeysAreNotShared: executions with few partition keys, and starts that contend for few unique keys, while workers die, stand still and
// are cut off, and the database crashes.
func TestGuarantee7_KeysAreNotShared(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 3}, "lanes", "solo")
	a.workload.Players = 8
	end := a.begin()
	a.played(50)
	a.during(a.Kill(a.ctx, a.Workers()[0]))(func() { a.played(20) })
	a.during(a.Pause(a.ctx, a.Workers()[1]))(a.while(4 * time.Second))
	a.during(a.Kill(a.ctx, a.Primary()))(func() {})
	a.during(a.Cut(a.ctx, a.Workers()[2], a.Database()...))(a.while(4 * time.Second))
	a.played(50)
	end()
	a.settled()
}

// TestGuarantee8_ReadsAndRefusalsChangeNothing compares all tables before and after everything that can be read was read, and everything that can be
// refused was refused.
func TestGuarantee8_ReadsAndRefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{}, "pack", "family", "garbage")
	a.must(a.workload.Some(a.ctx, 5))
	for i := range 3 { // and some that wait, with something in the inbox
		_, err := a.js.Publish(a.ctx, fmt.Sprintf("stories.pack.w%d.start", i), []byte(`{"event": "waits", "items": 5}`))
		a.must(err)
		_, err = a.js.Publish(a.ctx, fmt.Sprintf("stories.pack.w%d.item", i), []byte(`{"event": "one of five"}`))
		a.must(err)
	}
	a.eventually("three instances wait", func(ctx context.Context) error {
		var n int
		err := a.db.QueryRow(ctx, `select count(*) from pointsman.v_instances where status = 'awaiting_signal' and inbox_count = 1`).Scan(&n)
		if n != 3 {
			return fmt.Errorf("%d wait: %w", n, err)
		}
		return err
	})
	before := a.tables()
	ref := map[string]any{"ref": "key:pack-w1"}
	for verb, requests := range map[string][]map[string]any{
		"get": {ref, {"ref": "key:pack-1"}, {"ref": "key:pack-w1", "wait": "100ms"}}, "list": {{}, {"machine": "pack"}, {"status": "awaiting_signal"}, {"correlation_prefix": "pack-"}},
		"inbox": {ref}, "history": {ref, {"ref": "key:pack-1"}}, "events": {ref, {"ref": "key:family-1"}, {"ref": "key:family-1", "key": "link"}},
		"held": {{}}, "dead-letters": {{}}, "dead-letter": {{"seq": 1}}, "message": {{"stream": stories.Stream, "seq": 1}},
		"routes": {{}}, "routes-test": {{"subject": "stories.pack.w1.item", "data": `{"event": "x"}`}}, "routes-rewind": {{"name": "pack", "to_seq": 1, "dry_run": true}},
	} {
		for _, r := range requests {
			a.eventually("the answer to "+verb, func(ctx context.Context) error {
				answer, err := a.ask(ctx, verb, r)
				if err != nil && !strings.Contains(string(answer), `"not_found"`) {
					return err
				}
				return nil
			})
		}
	}
	for _, refused := range []struct {
		verb string
		what map[string]any
	}{
		{"start", map[string]any{"machine": "pack", "correlation_key": "pack-w1"}},
		{"start", map[string]any{"machine": "no such.name"}},
		{"signal", map[string]any{"instance_id": "01890000-0000-7000-8000-000000000000", "name": "item"}},
		{"signal", map[string]any{"correlation_key": "pack-w1", "name": "no such name"}},
		{"signal", map[string]any{"correlation_key": "pack-1", "name": "item"}},
		{"retry", ref},
		{"retry", map[string]any{"ref": "key:nobody"}},
		{"cancel", map[string]any{"ref": "key:nobody"}},
	} {
		if answer, err := a.ask(a.ctx, refused.verb, refused.what); err == nil {
			t.Errorf("%s %v is not refused: %s", refused.verb, refused.what, answer)
		}
	}
	a.refuseUpdates()
	after := a.tables()
	for _, table := range slices.Sorted(maps.Keys(before)) {
		if before[table] != after[table] {
			t.Errorf("%s has changed: it had %s, and has %s", table, before[table], after[table])
		}
	}
}

// refuseUpdates of an instance: by its validator, which fails once as well, and of one that is nobody's or has ended.
func (a *arena) refuseUpdates() {
	a.Helper()
	pool, err := engine.Connect(a.ctx, a.DatabaseURL(), 4, false)
	a.must(err)
	defer pool.Close()
	client, err := engine.NewClient(pool, engine.Config{})
	a.must(err)
	a.must(client.Validate("pack", "change", func(_ context.Context, arg json.RawMessage) error {
		if string(arg) == "true" {
			return engine.Refuse("not today")
		}
		return errors.New("the validator is ill")
	}))
	result, err := client.Update(a.ctx, engine.ByKey("", "pack-w1"), engine.UpdateRequest{Name: "change", Arg: json.RawMessage("true")})
	if err != nil || result.Accepted || result.Reason != "not today" {
		a.Errorf("an update that is to be refused: %+v, %v", result, err)
	}
	var failed *engine.ValidatorError
	if _, err := client.Update(a.ctx, engine.ByKey("", "pack-w1"), engine.UpdateRequest{Name: "change"}); !errors.As(err, &failed) {
		a.Errorf("an update whose validator fails: %v", err)
	}
	if _, err := client.Update(a.ctx, engine.ByKey("", "nobody"), engine.UpdateRequest{Name: "change"}); !errors.Is(err, engine.ErrNotFound) {
		a.Errorf("an update of nobody: %v", err)
	}
	if _, err := client.Update(a.ctx, engine.ByKey("", "pack-1"), engine.UpdateRequest{Name: "change"}); !errors.Is(err, engine.ErrNoTarget) {
		a.Errorf("an update of one that has ended: %v", err)
	}
}

// tables are all rows of those tables that no clock changes: workers and relays say that they live.
func (a *arena) tables() map[string]string {
	a.Helper()
	rows, err := a.db.Query(a.ctx, `select table_name::text from information_schema.tables where table_schema = 'pointsman' and table_type = 'BASE TABLE'`)
	a.must(err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	a.must(err)
	all := map[string]string{}
	for _, name := range names {
		if slices.Contains([]string{"workers", "relays", "outbox_shards", "checkpoints", "routes"}, name) {
			continue
		}
		var text string
		a.must(a.db.QueryRow(a.ctx, `select count(*) || ' rows, ' || coalesce(md5(string_agg(t::text, E'\n' order by t::text)), '') from `+pgx.Identifier{"pointsman", name}.Sanitize()+` t`).Scan(&text))
		all[name] = text
	}
	return all
}

// TestGuarantee9_SIGTERMDrains: a worker and a bridge are told to end in the middle of their work. They end with 0 and in time; the steps that ran
// are committed, no lease and no delivery is left to run out, and what was too long is given back as it was.
func TestGuarantee9_SIGTERMDrains(t *testing.T) {
	t.Parallel()
	const shutdown = 5 * time.Second
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 2, Config: "http: {shutdown_timeout: 5s}\n" + strings.Replace(stories.Config(stories.Named("slow", "pack", "probe")...), "lease: 3s, heartbeat: 1s", "lease: 60s, heartbeat: 5s, shutdown_timeout: 5s", 1)},
		"slow", "pack", "probe")
	// With leases of a minute whatever is not given back is missed. These outlast the shutdown.
	for i := range 4 {
		event := fmt.Sprintf("long/%d", i)
		a.account.Expect(oracle.Event{ID: event, Key: fmt.Sprintf("slow-long%d", i), Want: oracle.Starts})
		msg := nats.NewMsg(fmt.Sprintf("stories.slow.long%d.start", i))
		msg.Data = fmt.Appendf(nil, `{"event": %q, "takes": %d}`, event, 2*shutdown.Milliseconds())
		msg.Header.Set(oracle.HeaderEvent, event)
		_, err := a.js.PublishMsg(a.ctx, msg)
		a.must(err)
	}
	end := a.begin()
	a.played(20)
	for _, m := range []*cluster.Member{a.Workers()[0], a.Bridges()[0], a.Workers()[1], a.Bridges()[1]} {
		began := time.Now()
		a.must(a.Terminate(a.ctx, m))
		took := time.Since(began)
		t.Logf("%s ended %s after SIGTERM", m, took.Round(time.Millisecond))
		if took > shutdown+15*time.Second { // for a machine that has other things to do
			t.Errorf("%s took %s to end, with a shutdown timeout of %s", m, took, shutdown)
		}
		a.played(10)
		a.must(a.StartAgain(a.ctx, m))
	}
	end()
	a.settled()
	a.eventually("no lease is left", func(ctx context.Context) error {
		var n int
		err := a.db.QueryRow(ctx, `select count(*) from pointsman.leases`).Scan(&n)
		if n > 0 {
			return fmt.Errorf("%d leases", n)
		}
		return err
	})
	for _, r := range a.account.Records() {
		if r.Attempt > 0 {
			t.Errorf("step %s of %s ran again, as after a crash: %+v", r.Step, r.Key, r)
		}
	}
}
