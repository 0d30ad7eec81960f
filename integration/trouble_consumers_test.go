package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestConsumersAndStreamsInTrouble does to five routes what may happen to a stream or a consumer, while no bridge runs and while one
// does: nothing is lost that the stream still has, and nothing is there twice.
func TestConsumersAndStreamsInTrouble(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	streams := map[string]string{"deleted": "DELETED", "purged": "PURGED", "remade": "REMADE", "limited": "LIMITED", "skipped": "SKIPPED"}
	c, yaml := s.client(s.databaseURL), "routes:\n"
	for name, stream := range streams {
		s.waiting(c, name)
		s.stream(stream)
		yaml += route(name, stream, "")
	}
	// The limit comes later, so that the first messages are acked for sure.
	all := func(from, to int) {
		for name := range streams {
			s.numbers(name+".x", name, from, to)
		}
	}
	bridge, _ := s.bridge("first", yaml)
	all(0, 100)
	for name, stream := range streams {
		s.acked(stream, name, 100)
	}
	bridge.kill()

	all(100, 150)
	s.must(s.js.DeleteConsumer(t.Context(), "DELETED", "pointsman-deleted"))
	purged, err := s.js.Stream(t.Context(), "PURGED")
	s.must(err)
	s.must(purged.Purge(t.Context()))
	s.numbers("purged.x", "purged", 150, 175)
	s.must(s.js.DeleteStream(t.Context(), "REMADE"))
	s.stream("REMADE")
	s.numbers("remade.x", "remade", 150, 210) // their sequences were others' before
	_, err = s.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "LIMITED", Subjects: []string{"limited.>"}, MaxMsgs: 30})
	s.must(err)
	s.must(s.js.DeleteConsumer(t.Context(), "SKIPPED", "pointsman-skipped"))
	_, err = s.js.CreateConsumer(t.Context(), "SKIPPED", jetstream.ConsumerConfig{
		Durable: "pointsman-skipped", DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "skipped.>",
	})
	s.must(err)
	s.numbers("skipped.x", "skipped", 150, 160)

	_, addr := s.bridge("second", yaml)
	s.has("deleted", [2]int{0, 150})
	s.has("purged", [2]int{0, 100}, [2]int{150, 175})
	s.has("remade", [2]int{0, 100}, [2]int{150, 210})
	s.has("limited", [2]int{0, 100}, [2]int{120, 150})
	s.has("skipped", [2]int{0, 160})

	// The same under a bridge that runs. A consumer is made again by the bridge or by others, whoever is first.
	s.must(s.js.DeleteConsumer(t.Context(), "DELETED", "pointsman-deleted"))
	s.must(purged.Purge(t.Context()))
	s.must(s.js.DeleteStream(t.Context(), "REMADE"))
	s.stream("REMADE")
	s.must(s.js.DeleteConsumer(t.Context(), "SKIPPED", "pointsman-skipped"))
	_, _ = s.js.CreateConsumer(t.Context(), "SKIPPED", jetstream.ConsumerConfig{
		Durable: "pointsman-skipped", DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "skipped.>",
	})
	all(300, 320)
	s.has("deleted", [2]int{0, 150}, [2]int{300, 320})
	s.has("purged", [2]int{0, 100}, [2]int{150, 175}, [2]int{300, 320})
	s.has("remade", [2]int{0, 100}, [2]int{150, 210}, [2]int{300, 320})
	s.has("limited", [2]int{0, 100}, [2]int{120, 150}, [2]int{300, 320})
	s.has("skipped", [2]int{0, 160}, [2]int{300, 320})
	s.ready(addr, http.StatusOK, "ready")
	if dead := len(s.messages("POINTSMAN_DLQ")); dead != 0 {
		t.Errorf("%d dead letters", dead)
	}
	// What was purged, deleted or dropped by a limit is not there to be audited; all that is has its fate.
	for name, left := range map[string]int{"deleted": 170, "purged": 20, "remade": 20, "limited": 30, "skipped": 180} {
		s.audited(yaml, name, fmt.Sprint("delivered:", left))
	}
}

// TestRightsAreTakenAway: readiness says which right is missed, and all goes on when it is given back.
func TestRightsAreTakenAway(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := func(denied string) string {
		return `jetstream { store_dir: "STORE/js" }
authorization { users: [ {user: me, password: me}, {user: pm, password: pm, permissions: { publish: { deny: [` + denied + `] } } } ] }
`
	}
	server := natsConf(t, conf(""))
	s.nats(server, "nats://me:me@", "nats://pm:pm@")
	s.waiting(s.client(s.databaseURL), "a")
	s.stream("RIGHTS")
	yaml := "routes:\n" + route("rights", "RIGHTS", "")
	_, addr := s.bridge("bridge", yaml)
	s.numbers("rights.x", "a", 0, 10)
	s.has("a", [2]int{0, 10})
	server.change(conf(`"$JS.API.CONSUMER.>"`))
	s.ready(addr, http.StatusServiceUnavailable, "ermissions Violation for Publish to \"$JS.API.CONSUMER.")
	s.numbers("rights.x", "a", 10, 20)
	server.change(conf(""))
	began := time.Now()
	s.has("a", [2]int{0, 20})
	s.ready(addr, http.StatusOK, "ready")
	t.Logf("went on %s after it was allowed to", time.Since(began).Round(time.Millisecond))
	s.audited(yaml, "rights", "delivered:20")
}

// TestDeadLettersAreFull: a message that is to be a dead letter is not acked until there is room for it, also over a kill -9; those that
// can be taken in go on.
func TestDeadLettersAreFull(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	full := jetstream.StreamConfig{Name: "POINTSMAN_DLQ", Subjects: []string{"pointsman.dlq.*"}, MaxMsgs: 2, Discard: jetstream.DiscardNew}
	_, err := s.js.CreateStream(t.Context(), full)
	s.must(err)
	s.waiting(s.client(s.databaseURL), "a")
	s.stream("FULL")
	yaml := "routes:\n" + route("full", "FULL", "")
	first, addr := s.bridge("first", yaml)
	for range 5 {
		_, err := s.js.Publish(t.Context(), "full.x", []byte("poison"))
		s.must(err)
	}
	s.numbers("full.x", "a", 0, 10)
	s.has("a", [2]int{0, 10})
	s.ready(addr, http.StatusServiceUnavailable, "maximum messages exceeded")
	if info := s.consumer("FULL", "full"); info.NumAckPending != 3 {
		t.Errorf("%d are not acked, want the 3 that there is no room for", info.NumAckPending)
	}
	first.kill()
	second := s.start("second", "bridge", "--config", s.file("second.yaml", yaml)) // not ready either
	addr = second.address(s)
	s.numbers("full.x", "a", 10, 20)
	s.has("a", [2]int{0, 20})
	full.MaxMsgs = -1
	_, err = s.js.UpdateStream(t.Context(), full)
	s.must(err)
	s.acked("FULL", "full", 25)
	s.ready(addr, http.StatusOK, "ready")
	s.audited(yaml, "full", "dead-lettered:5 delivered:20")
}
