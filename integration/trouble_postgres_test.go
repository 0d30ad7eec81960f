package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/pgserver"
)

// ownPostgres gives a stack a server of its own, which the programs reach over a link.
func (s *stack) ownPostgres() (*pgserver.Server, *link) {
	s.Helper()
	server, err := pgserver.Start(s.Context(), pgserver.Config{Settings: map[string]string{"fsync": "off", "shared_buffers": "32MB"}})
	s.must(err)
	s.Cleanup(func() { _ = server.Stop() })
	var l *link
	l, s.databaseURL = linkToPostgres(s.T, server.URL())
	s.must(s.start("migrate", "pointsman", "migrate", "up").wait(time.Minute))
	s.look(server)
	return server, l
}

// look opens the connection that a test looks with.
func (s *stack) look(server *pgserver.Server) {
	s.Helper()
	db, err := pgx.Connect(s.Context(), server.URL())
	s.must(err)
	s.Cleanup(func() { _ = db.Close(context.Background()) })
	s.db = db
}

// TestPostgresOutages: a kill -9, a cut and a hole. Each stops the reading, costs no message a delivery, and is over when it is over.
func TestPostgresOutages(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	server, link := s.ownPostgres()
	s.waiting(s.client(server.URL()), "a")
	s.stream("OUTAGES")
	yaml := "database: {max_conns: 4}\nroutes:\n" + route("outages", "OUTAGES", ", batch: {size: 50}")
	bridge, addr := s.bridge("bridge", yaml)
	s.numbers("outages.x", "a", 0, 100)
	s.inbox("a", 100)

	s.numbers("outages.x", "a", 100, 300) // the kill finds it at work
	s.must(server.Crash())
	s.look(server)
	s.inbox("a", 300)
	s.ready(addr, http.StatusOK, "ready")

	link.set(true)
	s.numbers("outages.x", "a", 300, 800)
	s.ready(addr, http.StatusServiceUnavailable, "inbox for route outages: accept: ")
	before, refused := s.consumer("OUTAGES", "outages"), link.refused.Load()
	s.until(patience, "it has tried again and again", func() (bool, string) {
		n := link.refused.Load() - refused
		return n > 8, fmt.Sprint(n)
	})
	after := s.consumer("OUTAGES", "outages")
	if after.AckFloor.Stream != before.AckFloor.Stream || after.NumAckPending > 200 || after.NumPending < 300 {
		t.Errorf("in an outage it goes on: %+v, then %+v", before, after)
	}
	link.set(false)
	s.inbox("a", 800)
	s.ready(addr, http.StatusOK, "ready")

	link.hole.Store(true)
	s.numbers("outages.x", "a", 800, 900)
	s.ready(addr, http.StatusServiceUnavailable, "inbox for route outages: accept: no answer in 5s")
	began := time.Now()
	link.hole.Store(false) // the connections that are there stay dead
	s.has("a", [2]int{0, 900})
	t.Logf("out of the hole after %s", time.Since(began).Round(time.Millisecond))
	s.ready(addr, http.StatusOK, "ready")

	info := s.acked("OUTAGES", "outages", 900)
	if info.NumRedelivered != 0 || info.Delivered.Consumer != 900 || info.Config.MaxDeliver != -1 {
		t.Errorf("outages have cost deliveries: %+v", info)
	}
	if n, dead := s.count(`select count(*) from pointsman.failures`), len(s.messages("POINTSMAN_DLQ")); n != 0 || dead != 0 {
		t.Errorf("outages were counted for %d messages, and %d are dead", n, dead)
	}
	// A line when one begins and when it ends, and none for an attempt. The hole may be found again by a batch that gets a dead connection.
	s.until(patience, "three outages have a line each for their begin and their end", func() (bool, string) {
		begins := strings.Count(bridge.out.String(), `msg="not ready" part="inbox for route outages"`)
		ends := strings.Count(bridge.out.String(), `msg=ready part="inbox for route outages"`)
		return begins == ends && begins >= 2 && begins <= 5, fmt.Sprintf("%d and %d", begins, ends)
	})
	s.audited(yaml, "outages", "delivered:900")
}

// TestOnePoisonOfTenThousand: Postgres refuses one message. The search for it takes a few transactions and not one a message.
func TestOnePoisonOfTenThousand(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.waiting(s.client(s.databaseURL), "a")
	s.stream("MANY")
	// Numbers of a sequence are never taken back: it counts the transactions that were rolled back, too.
	_, err := s.db.Exec(t.Context(), `create sequence attempts;
create function count_attempt() returns trigger language plpgsql as $$ begin perform nextval('public.attempts'); return null; end $$;
create trigger count_attempt before insert on pointsman.signals for each statement execute function count_attempt();
create function refuse_poison() returns trigger language plpgsql as $$ begin raise exception 'no number may be 7123' using errcode = '22003'; end $$;
create trigger refuse_poison before insert on pointsman.signals for each row when ((new.payload->>'n')::int = 7123) execute function refuse_poison()`)
	s.must(err)
	s.numbers("many.x", "a", 0, 10_000)
	yaml := "routes:\n" + route("many", "MANY", ", batch: {size: 5000, wait: 1s}")
	_, addr := s.bridge("bridge", yaml)
	s.has("a", [2]int{0, 7123}, [2]int{7124, 10_000})
	s.acked("MANY", "many", 10_000)
	letters := s.messages("POINTSMAN_DLQ")
	if len(letters) != 1 || !strings.Contains(letters[0].Headers().Get("Pointsman-Reason"), "no number may be 7123") || letters[0].Headers().Get("Pointsman-Seq") != "7124" {
		t.Errorf("%d dead letters: %v", len(letters), letters[0].Headers())
	}
	batches := int(s.metric(addr, "pointsman_bridge_batch_seconds_count"))
	attempts := s.count(`select last_value from attempts`)
	t.Logf("%d batches took %d transactions: %d more for the poison", batches, attempts, attempts-batches)
	if extra := attempts - batches; extra < 1 || extra > 2*13 { // two for each halving of 5,000
		t.Errorf("%d batches took %d transactions", batches, attempts)
	}
	s.audited(yaml, "many", "dead-lettered:1 delivered:9999")
}

// TestLockedRow: a message whose target somebody has locked comes again, its failures are counted over a restart, and no other waits for it.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.waiting(s.client(s.databaseURL), "a", "locked", "soon")
	s.stream("LOCKED")
	lock := func(key string) (release func()) {
		db, err := pgx.Connect(t.Context(), s.databaseURL)
		s.must(err)
		_, err = db.Exec(t.Context(), `begin; select from pointsman.instances where correlation_key = '`+key+`' for update`)
		s.must(err)
		return func() { _ = db.Close(context.Background()) }
	}
	defer lock("locked")()
	release := lock("soon")
	defer release()
	s.numbers("locked.x", "a", 0, 150)
	s.numbers("locked.x", "locked", 150, 151)
	s.numbers("locked.x", "soon", 151, 152)
	s.numbers("locked.x", "a", 152, 300)
	yaml := "routes:\n" + route("locked", "LOCKED", ", max_deliver: 2, batch: {size: 500, wait: 1s}")
	first, _ := s.bridge("first", yaml)
	s.has("a", [2]int{0, 150}, [2]int{152, 300})
	failures := `select count(*) from pointsman.failures where n = 1`
	s.until(patience, "two failures are counted", func() (bool, string) { return s.count(failures) == 2, "" })
	s.must(first.stop(patience))
	release()
	s.bridge("second", yaml)
	s.has("soon", [2]int{151, 152})
	s.acked("LOCKED", "locked", 300)
	letters := s.messages("POINTSMAN_DLQ")
	if len(letters) != 1 || !strings.Contains(letters[0].Headers().Get("Pointsman-Reason"), "failed 2 times, lastly: ") || letters[0].Headers().Get("Pointsman-Seq") != "151" {
		t.Errorf("%d dead letters: %v", len(letters), letters[0].Headers())
	}
	s.audited(yaml, "locked", "dead-lettered:1 delivered:299")
}

// TestLockedTable: nobody can be delivered to while somebody has a table to himself. That is an outage, and no message's failure; and it
// may last longer than the server waits for an ack.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.waiting(s.client(s.databaseURL), "a")
	s.stream("TABLE")
	yaml := "routes:\n" + route("table", "TABLE", ", max_deliver: 1, batch: {size: 20}")
	_, addr := s.bridge("bridge", yaml)
	locker, err := pgx.Connect(t.Context(), s.databaseURL)
	s.must(err)
	defer func() { _ = locker.Close(context.Background()) }()
	_, err = locker.Exec(t.Context(), `begin; lock table pointsman.signals in access exclusive mode`)
	s.must(err)
	s.numbers("table.x", "a", 0, 100)
	s.ready(addr, http.StatusServiceUnavailable, "inbox for route table")
	ackWait := s.consumer("TABLE", "table").Config.AckWait
	began := time.Now()
	s.until(patience, "longer than the server waits", func() (bool, string) { return time.Since(began) > ackWait+time.Second, "" })
	s.must(locker.Close(t.Context()))
	s.has("a", [2]int{0, 100})
	info := s.acked("TABLE", "table", 100)
	if info.NumRedelivered != 0 || info.Delivered.Consumer != 100 {
		t.Errorf("messages came again: %+v", info)
	}
	if n := s.count(`select count(*) from pointsman.failures`); n != 0 {
		t.Errorf("%d messages were blamed", n)
	}
	s.audited(yaml, "table", "delivered:100")
}
