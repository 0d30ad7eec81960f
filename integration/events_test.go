package integration

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/engine"
)

// TestEventIsSentOnce: a bridge is killed after the event of a message is committed, and before the server has heard of it. The message comes
// again, and is not the event of the next trigger with the key.
func TestEventIsSentOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.client(s.databaseURL)
	s.stream("EVENTS")
	direct := s.natsURL
	link, through := linkToNATS(t, direct)
	const yaml = "routes:\n  - {name: events, stream: EVENTS, subject: events.>, event: \"e:{{payload.key}}\"}\n"
	create := func(key string) {
		_, err := c.CreateTrigger(t.Context(), "", engine.EventWait{Key: key})
		s.must(err)
	}
	create("e:a")
	lock, err := pgx.Connect(t.Context(), s.databaseURL)
	s.must(err)
	defer func() { _ = lock.Close(context.Background()) }()
	_, err = lock.Exec(t.Context(), `begin; select from pointsman.triggers where event_key = 'e:a' for update`)
	s.must(err)

	s.natsURL = through
	first, _ := s.bridge("first", yaml)
	s.natsURL = direct
	s.numbers("events.x", "a", 0, 1)
	s.until(patience, "the bridge sends the event", func() (bool, string) {
		return s.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%/* end triggers */%'`) == 1, ""
	})
	link.hole.Store(true)
	s.must(lock.Close(t.Context()))
	s.until(patience, "the event is received", func() (bool, string) {
		return s.count(`select count(*) from pointsman.triggers where status = 'received'`) == 1, ""
	})
	first.kill()
	if info := s.consumer("EVENTS", "events"); info.NumAckPending != 1 || info.AckFloor.Stream != 0 {
		t.Fatalf("the ack has come: %+v", info)
	}

	create("e:a")
	s.bridge("second", yaml)
	s.acked("EVENTS", "events", 1)
	if info := s.consumer("EVENTS", "events"); info.Delivered.Consumer < 2 {
		t.Errorf("the message was delivered once: %+v", info)
	}
	g, err := c.Trigger(t.Context(), "", "e:a")
	s.must(err)
	if g.Status != engine.TriggerWaiting {
		t.Errorf("the next trigger is %s", g.Status)
	}
	if n := s.count(`select count(*) from pointsman.triggers where status = 'received' and response_payload = $1`, json.RawMessage(`{"key": "a", "n": 0}`)); n != 1 {
		t.Errorf("%d have received it", n)
	}
	if letters := s.messages("POINTSMAN_DLQ"); len(letters) != 0 {
		t.Errorf("%d dead letters", len(letters))
	}
}
