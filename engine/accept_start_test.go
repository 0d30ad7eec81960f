package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// startOf is the start that a route without a signal makes of message seq.
func startOf(key, dedup string, seq uint64) engine.Intake {
	return engine.Intake{
		To: engine.ByKey("", key), DedupKey: dedup, Body: []byte(dedup), Start: &engine.NewInstance{Machine: "m"},
		Origin: engine.Origin{Route: "r", Stream: "S", Created: time.Unix(1, 0), Sequence: seq},
	}
}

// A message starts once, whatever its dedup key and its content are when it comes again, by a redelivery or a rewind.
func TestStartsOfAMessage(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", ""} {
		b := setup(t)
		b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil))}))
		first := b.accept(startOf(key, "d", 1))[0]
		equal(t, "first", first.Result, engine.Started)
		b.ends(first.InstanceID, engine.StatusDone)
		for _, again := range []bool{false, true} {
			in := startOf(key, "by now", 1)
			in.Redelivered = again
			equal(t, "again", b.accept(in)[0], engine.Receipt{Result: engine.Duplicate, InstanceID: first.InstanceID})
			equal(t, "on record", must(b.Look(t.Context(), in))(t).Result, engine.Started)
		}
		remade := startOf(key, "another", 1)
		remade.Origin.Created = time.Unix(2, 0)
		equal(t, "of a stream made again", b.accept(remade)[0].Result, engine.Started)
		other := startOf(key, "d", 2)
		equal(t, "another message with its dedup key", b.accept(other)[0].Result, engine.Duplicate)
	}
}

// A message that finds its key live has been a duplicate, and is one when the key is free again. Who was refused by the API may try again.
func TestStartOfAMessageThatFindsItsKeyTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.begin("idle", "k")
	late := startOf("k", "d", 1)
	want := engine.Receipt{Result: engine.Duplicate, InstanceID: holder.ID}
	equal(t, "taken", b.accept(late)[0], want)
	equal(t, "on record", must(b.Look(t.Context(), late))(t).Result, engine.Duplicate)
	byAPI := engine.NewInstance{Machine: "idle", CorrelationKey: "k", DedupKey: "api"}
	if _, err := b.Start(t.Context(), byAPI); engine.Code(err) != "conflict" {
		t.Errorf("by the API: %v", err)
	}
	must(b.Cancel(t.Context(), engine.ByID(holder.ID), ""))(t)
	equal(t, "after the end", b.accept(late)[0], want)
	changed := startOf("k", "by now", 1)
	equal(t, "under another dedup key", b.accept(changed)[0], want)
	b.start(byAPI)

	unique := startOf("other", "u", 2)
	unique.Start = &engine.NewInstance{Machine: "idle", UniqueKey: "U"}
	barring := b.start(engine.NewInstance{Machine: "idle", UniqueKey: "U"})
	want.InstanceID = barring.ID
	equal(t, "barred", b.accept(unique)[0], want)
	must(b.Cancel(t.Context(), engine.ByID(barring.ID), ""))(t)
	equal(t, "after the end of who barred it", b.accept(unique)[0], want)
}

// Starts without a key have two locks each; a batch of them takes as many transactions as that needs.
func TestManyStartsOfMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var batch []engine.Intake
	for i := range 250 {
		batch = append(batch, startOf("", fmt.Sprint(i), uint64(i)))
	}
	for i, r := range b.accept(batch...) {
		equal(t, fmt.Sprint("result ", i), r.Result, engine.Started)
	}
	equal(t, "instances", b.count(`select count(*) from pointsman.instances`), len(batch))
}

// A transaction of the caller's locks no more than 200 keys.
func TestAcceptTxOfManyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var batch []engine.Intake
	for i := range 402 {
		batch = append(batch, engine.Intake{To: engine.ByKey("", fmt.Sprint(i/2)), Name: "s", OnMissing: engine.MissingHold})
	}
	tx := must(b.pool.Begin(t.Context()))(t)
	_, err := b.AcceptTx(t.Context(), tx, batch)
	if engine.Code(err) != "invalid" {
		t.Fatalf("201 keys: %v", err)
	}
	contains(t, "201 keys", err.Error(), "batch: is for 201 keys, and a transaction locks at most 200: use several")
	rs := must(b.AcceptTx(t.Context(), tx, batch[:400]))(t)
	must(0, tx.Commit(t.Context()))(t)
	equal(t, "the last", rs[399].Result, engine.Held)
	equal(t, "held", b.count(`select count(*) from pointsman.held`), 400)
}
