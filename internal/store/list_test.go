package store

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// longList are instances in the order of their ids, more than one list looks through: number 1 is the oldest. Only the oldest ones are of
// the machine "rare", and failed.
const longList = `
insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, parked, live, status, finished_at)
select lpad(to_hex(g), 32, '0')::uuid, 'p', case when g <= 3 then 'rare' else 'm' end, 1, 'q', 'k-' || g, gen_random_uuid(), 's', '{}', g > 3, g > 3,
  case when g <= 3 then 'failed' end, case when g <= 3 then now() end
from generate_series(1, 12000) g`

// A list finds what is rare, and reads no more than its window at once.
func TestListOfMany(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(longList)
	for name, c := range map[string]struct {
		filter Filter
		calls  int // until the first is found
	}{
		"by status":                 {Filter{Status: "failed"}, 1},
		"by key":                    {Filter{CorrelationKey: "k-3"}, 1},
		"by prefix":                 {Filter{CorrelationPrefix: "k-3", Machine: "rare"}, 1},
		"by a prefix that all have": {Filter{CorrelationPrefix: "k-", Machine: "rare"}, 3},
		"by machine":                {Filter{Machine: "rare"}, 3},
	} {
		c.filter.Project = project
		before, calls := uuid.Max, 0
		var page []Instance
		for before != uuid.Nil && len(page) == 0 {
			page, before = must2(f.List(t.Context(), c.filter, before, 1))(t)
			calls++
		}
		if len(page) != 1 || page[0].CorrelationKey != "k-3" || calls != c.calls {
			t.Errorf("%s: after %d calls, want %d: %+v", name, calls, c.calls, page)
		}
	}
}

// Page after page all come, each once, newest first.
func TestListPages(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(longList)
	before, last, n := uuid.Max, uuid.Max, 0
	for before != uuid.Nil {
		var page []Instance
		page, before = must2(f.List(t.Context(), Filter{Project: project}, before, 1000))(t)
		for _, in := range page {
			if in.ID.String() >= last.String() {
				t.Fatalf("%s after %s", in.ID, last)
			}
			last = in.ID
			n++
		}
	}
	equal(t, "all", n, 12000)
}

// What a list says of an instance is what v_instances says.
func TestListAgreesWithGet(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hour := time.Hour
	parked := f.started("awaiting")[0]
	o := await(f.picked(), "signal/pay", "event/e")
	o.Delay = &hour
	f.commit(o)
	f.fast(signalID(parked, "other", "1"))
	f.ended("done")
	canceled := f.started("canceled")[0]
	must(f.Cancel(t.Context(), []uuid.UUID{canceled}, "why", publish))(t)
	for len(f.pick(8)) > 0 { // the canceled one is stale
	}
	f.started("executing")
	f.picked()
	later := newInstance("later")
	at := time.Now().Add(hour)
	later.RunAt, later.PartitionKey, later.UniqueKey, later.UniqueScope = &at, "p", "u", 7
	f.begin(later)
	f.started("runnable")
	page, _ := must2(f.List(t.Context(), Filter{Project: project}, uuid.Max, 100))(t)
	equal(t, "instances", len(page), 6)
	statuses := map[string]bool{}
	for _, in := range page {
		statuses[in.Status] = true
		if got, _ := must2(f.Get(t.Context(), project, in.ID))(t); !reflect.DeepEqual(got, in) {
			t.Errorf("listed as\n%+v, and is\n%+v", in, got)
		}
	}
	equal(t, "statuses", len(statuses), 5)
}

// A page that is short says where the next one begins, and one that is full has not read on.
func TestListOfStatusesOfMany(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(longList)
	f.exec(`update pointsman.instances set parked = false where correlation_key in ('k-5', 'k-11000')`)
	for status, want := range map[string]string{"runnable": "k-11000 k-5", "awaiting_signal": "k-12000 k-11999"} {
		var keys []string
		before, calls := uuid.Max, 0
		for before != uuid.Nil && len(keys) < 2 {
			var page []Instance
			page, before = must2(f.List(t.Context(), Filter{Project: project, Status: status}, before, 2))(t)
			calls++
			for _, in := range page {
				keys = append(keys, in.CorrelationKey)
			}
		}
		equal(t, status, strings.Join(keys, " "), want)
		equal(t, status+": calls", calls, map[string]int{"runnable": 3, "awaiting_signal": 1}[status])
	}
}
