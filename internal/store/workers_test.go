package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

func (f *fixture) unserved() string {
	f.t.Helper()
	var all []string
	for _, l := range must(f.Unserved(f.t.Context()))(f.t) {
		if l.Oldest < time.Hour || l.Oldest > 2*time.Hour {
			f.t.Errorf("%+v: want the oldest to be an hour old", l)
		}
		all = append(all, fmt.Sprint(l.Queue, "/", l.Lane.Lane, ":", l.Ready))
	}
	return fmt.Sprint(all)
}

// A lane is served by a worker that was seen of late, and has its queue and its machine version.
func TestUnserved(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.started("a", "b", "c", "d", "e", "f")
	f.exec(`update pointsman.ready r set run_at = now() - interval '1 h', priority = 7,
		queue = case when correlation_key = 'f' then 'other' else 'q' end, lane = case when correlation_key < 'c' then '' when correlation_key < 'e' then 'm@1' else 'm@2' end
		from pointsman.instances i where i.id = r.instance_id`)
	// One that came later and is to run earlier does not hide the oldest.
	f.exec(`insert into pointsman.ready (queue, lane, priority, instance_id, rev) select 'q', 'm@1', 0, id, 0 from pointsman.instances where correlation_key = 'c'`)
	serving := func(machines ...string) Serving { return Serving{Queues: map[string]int{queue: 4}, Machines: machines} }
	seen := func(worker string, what Serving) { must(struct{}{}, f.Seen(t.Context(), worker, what))(t) }

	equal(t, "by nobody", f.unserved(), "[other/m@2:1 q/:2 q/m@1:3 q/m@2:1]")
	seen("old", serving("m@1"))
	equal(t, "by one that knows version 1", f.unserved(), "[other/m@2:1 q/m@2:1]")
	seen("new", serving("m@1", "m@2"))
	equal(t, "by one that knows both", f.unserved(), "[other/m@2:1]")
	must(struct{}{}, f.Gone(t.Context(), "new"))(t)
	equal(t, "after it has gone", f.unserved(), "[other/m@2:1 q/m@2:1]")
	seen("old", serving("m@2"))
	equal(t, "by one that knows another version now", f.unserved(), "[other/m@2:1 q/m@1:3]")
	f.exec(`update pointsman.workers set seen_at = now() - interval '61 s'`)
	equal(t, "by one that is silent", f.unserved(), "[other/m@2:1 q/:2 q/m@1:3 q/m@2:1]")
	seen("idle", Serving{})
	equal(t, "by one without machines", f.unserved(), "[other/m@2:1 q/:2 q/m@1:3 q/m@2:1]")
	must(f.Cancel(t.Context(), []uuid.UUID{ids[5]}, "", publish))(t)
	f.exec(`update pointsman.instances set paused = true, rev = rev + 1 where id = $1`, ids[4])
	equal(t, "without what was canceled and what is paused", f.unserved(), "[q/:2 q/m@1:3]")
	f.exec(`update pointsman.workers set seen_at = now() - interval '2 days'`)
	seen("idle", Serving{})
	f.want("idle", `select name from pointsman.workers`)
	f.exec(`delete from pointsman.ready`)
	equal(t, "of nothing", f.unserved(), "[]")
}

// A lane that is served is not looked into, however much is in it: in a flow of work that is done every few seconds.
func TestUnservedLooksIntoNoLaneThatIsServed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(many)
	f.exec(`insert into pointsman.ready (queue, priority, instance_id, rev) select queue, 0, id, rev from pointsman.instances`)
	f.exec(`analyze pointsman.ready`)
	must(struct{}{}, f.Seen(t.Context(), "w", Serving{Queues: map[string]int{queue: 4}, Machines: []string{"m@1"}}))(t)
	e := explains(f, false)
	must(e.Unserved(t.Context()))(t)
	must(e.Unserved(t.Context()))(t)
	for _, x := range e.seen {
		if x.name == "unserved" && x.buffers > 200 {
			t.Errorf("unserved touches %d pages beside %d ready instances that are served", x.buffers, benchInstances)
		}
	}
	if len(e.seen) < 2 {
		t.Errorf("%d statements were explained", len(e.seen))
	}
}
