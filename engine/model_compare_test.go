package engine_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/migrations"
)

const emptyAll = `
with a as (delete from pointsman.instances), b as (delete from pointsman.ready), c as (delete from pointsman.leases), d as (delete from pointsman.timers),
  e as (delete from pointsman.signals), f as (delete from pointsman.ledger), g as (delete from pointsman.held), h as (delete from pointsman.outbox),
  i as (delete from pointsman.history), j as (delete from pointsman.events), k as (delete from pointsman.running_keys), l as (delete from pointsman.waiters)
delete from pointsman.unique_keys`

// observations are what there is to see, a line each; {n:x} is the number in an id, {t:x} how many ticks it is until a time.
var observations = []string{
	`select 'instance', {n:id}, status, step, 'attempt', attempt, 'state', state, 'result', coalesce(result::text, '-'), 'error', coalesce(last_error, '-'), 'queue', queue, priority,
		'awaits', array_to_string(awaits, '+'), coalesce({t:deadline}, 0), 'later', case when status = 'runnable' then {t:run_at} else 0 end, 'inbox', inbox_count, 'paused', paused
	 from pointsman.v_instances`,
	`select 'may run', {n:r.instance_id}, r.queue, 'solo', solo from (
		select instance_id, rev, queue, solo from pointsman.ready union all select instance_id, rev, queue, solo from pointsman.waiters) r
	 join pointsman.instances i on i.id = r.instance_id and i.rev = r.rev and i.live and not i.parked and not i.delayed and not i.paused`,
	`select 'lease', token, {t:expires_at}, (select string_agg({n:u.id}::text, ' ' order by u.id) from unnest(ids) u(id)) from pointsman.leases`,
	`select 'held', row_number() over (order by id), key, name, coalesce(dedup_key, '-'), payload, {t:expires_at} from pointsman.held`,
	`select 'history', {n:instance_id}, row_number() over (partition by instance_id order by rev, nth), step, outcome, attempt, coalesce(array_to_string(consumed, ' '), '') from pointsman.history`,
	`select 'event', {n:instance_id}, key, value from pointsman.events`,
	`select 'partition key', key, {n:instance_id}, token from pointsman.running_keys`,
}

const (
	observedInboxes = `select {n:instance_id}, id, name, case when kind = 'child' then '' else coalesce(dedup_key, '') end,
		case when kind <> 'child' then payload::text when payload->>'status' = 'not_started' then 'not_started '
			else concat(payload->>'status', ' ', payload->>'result', payload->>'reason') end
	 from pointsman.signals order by instance_id, id`
	observedUnique = `select key, {n:instance_id} from pointsman.unique_keys`
	// observedOutbox empties it.
	observedOutbox = `
with o as (delete from pointsman.outbox returning *)
select case kind
  when 'publish' then concat_ws(' ', kind, subject, {n:instance_id} || ':', convert_from(body, 'UTF8'))
  when 'dead' then concat_ws(' ', kind, subject, split_part(headers::jsonb->'Pointsman-Reason'->>0, ':', 1) || ':', convert_from(body, 'UTF8'))
  else concat_ws(' ', kind, subject, {n:instance_id} || ':', b->>'machine', b->>'version', b->>'status', coalesce(b->>'correlation_key', ''), coalesce(b->>'result', ''), coalesce(b->>'reason', '')) end,
  msg_id from o cross join lateral (select case when kind in ('outcome', 'reply') then convert_from(body, 'UTF8')::jsonb end as b) x`
)

// observed makes SQL of an observation.
func observed(sql, schema string) string {
	sql = strings.NewReplacer(
		"{n:id}", number("id"), "{n:instance_id}", number("instance_id"), "{n:r.instance_id}", number("r.instance_id"), "{n:u.id}", number("u.id"),
		"{t:deadline}", ticks("deadline"), "{t:run_at}", ticks("run_at"), "{t:expires_at}", ticks("expires_at")).Replace(sql)
	return migrations.Qualify(sql, schema)
}

func number(id string) string {
	return "(get_byte(uuid_send(" + id + "), 14) * 256 + get_byte(uuid_send(" + id + "), 15))"
}

func ticks(at string) string {
	return fmt.Sprintf("greatest(0, ceil(extract(epoch from %s - now()) / %d))::int", at, int(tick.Seconds()))
}

// compare wants all tables to hold what the model says.
func (g *game) compare() {
	var got []string
	b := &pgx.Batch{}
	line := func(r pgx.Rows) error {
		values, err := r.Values()
		if err != nil {
			return err
		}
		for i, v := range values {
			if id, ok := v.([16]byte); ok {
				values[i] = fmt.Sprintf("%x", id)
			}
			if m, ok := v.(map[string]any); ok { // a state
				values[i] = fmt.Sprintf(`{"n": %v}`, m["n"])
			}
		}
		got = append(got, strings.TrimSpace(fmt.Sprintln(values...)))
		return nil
	}
	add := func(sql string, row func(pgx.Rows) error) {
		b.Queue(observed(sql, g.db.Schema)).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := row(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	inboxes := map[int][]*modelSignal{}
	unique := map[string]int{}
	var outbox []string
	for _, sql := range observations {
		add(sql, line)
	}
	add(observedInboxes, func(r pgx.Rows) error {
		n, s := 0, &modelSignal{}
		err := r.Scan(&n, &s.id, &s.name, &s.dedup, &s.payload)
		inboxes[n] = append(inboxes[n], s)
		return err
	})
	add(observedUnique, func(r pgx.Rows) error {
		key, n := "", 0
		err := r.Scan(&key, &n)
		unique[key] = n
		return err
	})
	add(observedOutbox, func(r pgx.Rows) error {
		text, id := "", ""
		err := r.Scan(&text, &id)
		outbox = append(outbox, text)
		return err
	})
	add(`select now()`, func(r pgx.Rows) error {
		before := g.at
		err := r.Scan(&g.at)
		g.stepped = g.stepped || g.at.Before(before)
		return err
	})
	g.ok(g.db.Pool.SendBatch(g.ctx, b).Close())
	g.learn(inboxes, unique)
	g.same("what is published", outbox, g.m.outbox)
	g.same("the state", got, g.m.lines())
}

// learn takes over what the model does not say: the ids of signals, and who of several got a unique key.
func (g *game) learn(inboxes map[int][]*modelSignal, unique map[string]int) {
	for _, in := range g.m.instances {
		got := inboxes[in.n]
		delete(inboxes, in.n)
		same := len(got) == len(in.inbox)
		for i := 0; same && i < len(got); i++ {
			want := in.inbox[i]
			same = got[i].name == want.name && got[i].dedup == want.dedup && got[i].payload == want.payload && (want.id == 0 || want.id == got[i].id)
			want.id = got[i].id
		}
		if !same {
			g.Fatalf("the inbox of instance %d has%s\nwant%s", in.n, inboxText(got), inboxText(in.inbox))
		}
	}
	if len(inboxes) > 0 {
		g.Fatalf("there are inboxes of nobody: %v", slices.Collect(maps.Keys(inboxes)))
	}
	for key, ins := range g.m.contested {
		for _, in := range ins {
			if in == nil && unique[key] == 0 {
				delete(g.m.unique, key)
			} else if in != nil && unique[key] == in.n {
				g.m.unique[key] = in
			}
		}
	}
	for key, in := range g.m.unique {
		if unique[key] != in.n {
			g.Fatalf("the unique key %s is held by instance %d, want %d", key, unique[key], in.n)
		}
		delete(unique, key)
	}
	if len(unique) > 0 {
		g.Fatalf("unique keys are held: %v", unique)
	}
}

func inboxText(sigs []*modelSignal) (s string) {
	for _, g := range sigs {
		s += fmt.Sprintf("\n  %d %s %s %s", g.id, g.name, g.dedup, g.payload)
	}
	return s
}

// same compares lines in any order.
func (g *game) same(what string, got, want []string) {
	slices.Sort(got)
	slices.Sort(want)
	if slices.Equal(got, want) {
		return
	}
	var diff []string
	for _, line := range got {
		if i := slices.Index(want, line); i >= 0 {
			want = slices.Delete(want, i, i+1)
		} else {
			diff = append(diff, "+ "+line)
		}
	}
	for _, line := range want {
		diff = append(diff, "- "+line)
	}
	g.Fatalf("%s differs from the model (+ is there, - should be):\n%s", what, strings.Join(diff, "\n"))
}

// lines are the observations as the model has them.
func (m *model) lines() (lines []string) {
	add := func(parts ...any) { lines = append(lines, strings.TrimSpace(fmt.Sprintln(parts...))) }
	left := func(due int) int { return max(0, due-m.now) }
	for _, in := range m.instances {
		awaits, deadline, later := "", 0, 0
		if in.status == engine.StatusAwaiting {
			if awaits, deadline = strings.Join(in.awaits, "+"), left(in.due); in.children != 0 {
				awaits = strings.TrimPrefix(awaits+"+"+childrenLabel(in.children), "+")
			}
		} else if in.due > 0 {
			later = left(in.due)
		}
		add("instance", in.n, in.status, in.step, "attempt", in.attempt, "state", in.state, "result", orDash(in.result), "error", orDash(in.lastError), "queue", in.queue, in.priority,
			"awaits", awaits, deadline, "later", later, "inbox", len(in.inbox), "paused", in.paused && in.status.Live())
		if in.ready() {
			add("may run", in.n, in.queue, "solo", in.solo)
		}
		for i, h := range in.history {
			var ids []string
			for _, g := range h.consumed {
				ids = append(ids, fmt.Sprint(g.id))
			}
			add("history", in.n, i+1, h.step, h.outcome, h.attempt, strings.Join(ids, " "))
		}
		for key, value := range in.events {
			add("event", in.n, key, value)
		}
	}
	for token, l := range m.leases {
		var members []string
		for _, in := range l.members {
			members = append(members, fmt.Sprint(in.n))
		}
		slices.SortFunc(members, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		add("lease", fmt.Sprintf("%x", [16]byte(token)), left(l.due), strings.Join(members, " "))
	}
	for i, g := range m.held {
		add("held", i+1, g.key, g.name, orDash(g.dedup), g.payload, left(g.due))
	}
	for key, turn := range m.partitions {
		for token, l := range m.leases {
			if l == turn.lease {
				add("partition key", key, turn.instance.n, fmt.Sprintf("%x", [16]byte(token)))
			}
		}
	}
	return lines
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
