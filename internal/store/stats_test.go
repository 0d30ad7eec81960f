package store

import (
	"fmt"
	"testing"
	"time"
)

// Queues are those with something ready and those that are served, each once; workers come with what they hold.
func TestQueuesAndWorkers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := f.Store
	f.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state) select gen_random_uuid(), 'p', 'm', 1, q, gen_random_uuid(), 's', '{}' from unnest('{a,a,c,_outbox}'::text[]) q`)
	f.exec(`insert into pointsman.ready (queue, lane, priority, run_at, instance_id, rev) select queue, case when row_number() over (order by queue) = 3 then 'm@1' else '' end, 0, now() - interval '1 minute', id, rev from pointsman.instances`)
	for name, what := range map[string]Serving{"w1": {Queues: map[string]int{"a": 4, "b": 2}, Machines: []string{"m@1"}}, "w2": {Queues: map[string]int{"a": 3}}} {
		must(0, s.Seen(t.Context(), name, what))(t)
	}
	f.exec(`insert into pointsman.workers values ('lost', now(), now() - interval '2 minutes', '{"queues": {"z": 1}}')`)
	f.exec(`insert into pointsman.leases select gen_random_uuid(), 'w1', now() + interval '1 h', array_agg(id), array_agg(rev) from pointsman.instances where queue = 'a'`)
	got := ""
	for after := ""; ; {
		page := must(s.Queues(t.Context(), after, 2))(t)
		for _, q := range page {
			got += fmt.Sprintf("%s %d %d %d %t; ", q.Queue, q.Ready, q.Workers, q.Slots, q.Oldest >= time.Minute)
			after = q.Queue
		}
		if len(page) < 2 {
			break
		}
	}
	if want := "_outbox 1 0 0 true; a 2 2 7 true; b 0 1 2 false; c 1 0 0 true; "; got != want {
		t.Errorf("queues %s, want %s", got, want)
	}
	got = ""
	for _, w := range must(s.Workers(t.Context(), "", 2))(t) {
		got += fmt.Sprintf("%s %t %d %d %v %v; ", w.Name, w.Alive, w.Leases, w.Executing, w.Serving.Queues, w.Serving.Machines)
	}
	if want := "lost false 0 0 map[z:1] []; w1 true 1 2 map[a:4 b:2] [m@1]; "; got != want {
		t.Errorf("workers %s, want %s", got, want)
	}
	if rest := must(s.Workers(t.Context(), "w1", 2))(t); len(rest) != 1 || rest[0].Name != "w2" {
		t.Errorf("behind w1: %+v", rest)
	}
}

// Counts are of one project, by what the instances are.
func TestCounts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state, parked, paused, live, status, finished_at)
		select gen_random_uuid(), p, 'm', 1, 'q', gen_random_uuid(), 's', '{}', kind = 'parked', kind = 'paused', kind <> 'done' and kind <> 'old', case when kind in ('done', 'old') then 'done' end,
		  case kind when 'done' then now() when 'old' then now() - interval '1 hour' end
		from unnest('{p,p,other}'::text[]) p, unnest('{parked,parked,paused,ready,leased,done,old}'::text[]) kind`)
	f.exec(`insert into pointsman.leases select gen_random_uuid(), 'w', now() + interval '1 h', array[id, id], array[rev, rev + 1] from pointsman.instances where project = 'p' and live and not parked and not paused limit 1`)
	c := must(f.Store.Counts(t.Context(), "p"))(t)
	if got, want := fmt.Sprint(c.Live, c.Awaiting, c.Executing, c.Paused, c.Ended, c.EndedOfLate), "10 4 1 2 map[canceled:0 done:4 failed:0] map[canceled:0 done:2 failed:0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if c := must(f.Store.Counts(t.Context(), "none"))(t); c.Live+c.Ended["done"] != 0 {
		t.Errorf("of no project: %+v", c)
	}
}
