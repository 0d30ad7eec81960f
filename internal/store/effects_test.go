package store

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
)

func TestEffects(t *testing.T) {
	t.Parallel()
	f := setup(t)
	byKey, byID := f.parked("key", "signal/pay"), f.parked("", "signal/pay")
	ended := f.ended("ended")
	unknown, child := uuid.New(), newInstance("child")
	f.started("k")
	w := f.picked()
	o := outcome(w, OutcomeNext)
	o.Starts = []NewInstance{child, deduped(newInstance(""), "s"), newInstance("key")}
	o.Signals = []Signal{
		signal("key", "pay", "1"), signalID(byID, "pay", "2"), signal("later", "pay", "3"), signal("ended", "pay", "4"), signalID(ended, "pay", "5"),
		signalID(unknown, "pay", "6"), signal("child", "hello", "7"), signal("k", "self", "8"), signal("key", "pay", "1"),
	}
	o.Events, o.Publish = []Event{{"e", []byte("1")}}, []Publish{{Subject: "s"}}
	settled := f.commit(o)
	equal(t, "queues woken", fmt.Sprint(len(settled.Woken) >= 4), "true")
	f.want("child hello 7,k self 8,key pay 1", `select correlation_key, name, dedup_key from pointsman.v_inbox where correlation_key is not null order by 1`)
	f.want("2", `select dedup_key from pointsman.signals where instance_id = $1`, byID)
	f.want("false", `select parked from pointsman.instances where id = $1`, byKey)
	f.want("later 3", `select key, dedup_key from pointsman.held`)
	f.want("6", `select count(*) from pointsman.instances`)
	f.want(fmt.Sprint("key - ended,id ", ended, " ,id ", unknown, " "), `select case when h->'Pointsman-Instance-Id' is null then 'key' else 'id' end, coalesce(h->'Pointsman-Instance-Id'->>0, '-'),
		coalesce(h->'Pointsman-Correlation-Key'->>0, '') from (select id, headers::jsonb h from pointsman.outbox where kind = 'dead') x order by 1 desc, id`)
	f.want("1 1", `select (select count(*) from pointsman.events), (select count(*) from pointsman.outbox where kind = 'publish')`)

	// The same again, as after a lost lease, has been done.
	w = f.pickedKey("k")
	o2 := outcome(w, OutcomeNext)
	o2.Signals = []Signal{signal("key", "pay", "1"), signal("later", "pay", "3")}
	f.commit(o2)
	f.want("1 1", `select (select count(*) from pointsman.signals where instance_id = $1), (select count(*) from pointsman.held)`, byKey)
}

// pickedKey is the one of the ready instances that has the key.
func (f *fixture) pickedKey(key string) Work {
	f.t.Helper()
	for _, w := range f.pick(16) {
		if w.CorrelationKey == key {
			return w
		}
	}
	f.t.Fatalf("%s is not ready", key)
	return Work{}
}

// Instances of one commit may signal one another and themselves, whatever each of them comes to.
func TestEffectsWithinACommit(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("parks", "ends", "sends")
	var os []Outcome
	for _, w := range append(f.pick(2), f.pick(2)...) {
		switch w.CorrelationKey {
		case "parks":
			os = append(os, await(w, "signal/pay"))
		case "ends":
			os = append(os, outcome(w, OutcomeDone))
		default:
			o := await(w, "signal/self")
			o.Signals = []Signal{signal("parks", "pay", "1"), signal("ends", "pay", "2"), signal("sends", "self", "3")}
			os = append(os, o)
		}
	}
	f.commit(os...)
	f.want("parks,sends", `select correlation_key from pointsman.ready r join pointsman.instances i on i.id = r.instance_id and i.rev = r.rev order by 1`)
	f.want("1", `select count(*) from pointsman.outbox where kind = 'dead'`)
}

// Each outcome's effects are in its own project.
func TestEffectsStayInTheirProject(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	foreign := newInstance("theirs")
	err := f.InScopes(t.Context(), nil, func(tx *Store) error {
		_, err := tx.Start(t.Context(), "other", []NewInstance{foreign})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o := outcome(f.picked(), OutcomeNext)
	o.Signals = []Signal{signal("k", "pay", "1"), signal("theirs", "pay", "2")}
	f.commit(o)
	f.want("other k,other theirs", `select i.project, h.key from pointsman.held h, pointsman.instances i where i.id = $1 and h.project = i.project union all
		select project, correlation_key from pointsman.v_inbox order by 2`, foreign.ID)
}
