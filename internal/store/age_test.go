package store

import (
	"context"
	"strings"
	"testing"
	"time"
)

// timesThatStay name a stream or a consumer: they are no time at which something happened here.
var timesThatStay = map[string]bool{"checkpoints.created": true, "checkpoints.consumer": true, "checkpoints.first": true, "failures.created": true, "dropped_letters.created": true}

// Whoever adds a time to a table adds it to ageText, or says above why it stays.
func TestAgeKnowsEveryTime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	columns := f.rows(`select c.table_name || '.' || c.column_name from information_schema.columns c
		join information_schema.tables t using (table_schema, table_name)
		where c.table_schema = $1 and c.udt_name in ('timestamptz', 'timestamp') and t.table_type = 'BASE TABLE' order by 1`, f.schema)
	for column := range strings.SplitSeq(columns, ",") {
		table, name, _ := strings.Cut(column, ".")
		_, update, there := strings.Cut(f.text.age, "update "+f.schema+"."+table+" set ")
		update, _, _ = strings.Cut(update, ")")
		moves := there && strings.Contains(" "+update, " "+name+" = "+name+" - $1::interval")
		if want := !timesThatStay[column]; moves != want {
			t.Errorf("%s: moves %t, want %t: see ageText", column, moves, want)
		}
	}
}

// What is due in an hour is due when everything is an hour older, and no sooner.
func TestAge(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.started("k")[0]
	day := 24 * time.Hour
	o := await(f.picked(), "signal/pay")
	o.Delay = &day
	f.commit(o)
	f.slow(signal("nobody", "pay", "1"))
	f.started("leased")
	f.picked()
	before := f.rows(`select inserted_at, due_at from pointsman.instances where id = $1`, id)

	if err := f.Age(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	f.want("0", `select count(*) from pointsman.timers where run_at <= now()`)
	f.want("1 1", `select (select count(*) from pointsman.leases where expires_at <= now()), (select count(*) from pointsman.held where expires_at <= now())`)
	if err := f.Age(t.Context(), 23*time.Hour); err != nil {
		t.Fatal(err)
	}
	f.want("1", `select count(*) from pointsman.timers where run_at <= now()`)
	if err := f.Age(t.Context(), -day); err != nil {
		t.Fatal(err)
	}
	f.want(before, `select inserted_at, due_at from pointsman.instances where id = $1`, id)
}

func TestReadyLanes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.started("a", "b")
	other := newInstance("c")
	other.Queue = "other"
	f.begin(other)
	f.exec(`update pointsman.ready set lane = 'x@1', priority = 1 where instance_id = $1`, ids[0])
	want := []ReadyLane{{Lane{"other", ""}, other.ID}, {Lane{queue, ""}, ids[1]}, {Lane{queue, "x@1"}, ids[0]}}
	got := must(f.ReadyLanes(t.Context()))(t)
	if len(got) != len(want) {
		t.Fatalf("lanes %v, want %v", got, want)
	}
	for i := range want {
		equal(t, "lane", got[i], want[i])
	}
}

func aging(d time.Duration) op {
	return func(ctx context.Context, s *Store) error { return s.Age(ctx, d) }
}

func ages() []scenario {
	deadline := parks(1, 90)
	day := 24 * time.Hour
	deadline.Delay = &day
	return []scenario{
		{"age / park with a deadline", leased(90, valid, 1), together(aging(time.Hour), committing(deadline)), ""},
		{
			"age / deliver / lease sweep", awaiting(2, 1, "signal/pay") + awaiting(1, 1, "signal/pay") + leased(90, expired, 3),
			together(aging(time.Hour), delivering(pay(1, "d1"), pay(2, "d2")), sweepingLeases), "",
		},
	}
}
