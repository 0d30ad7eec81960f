package stories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/oracle"
)

// Rest finds out when all has come to rest, and judges then.
type Rest struct {
	DB      *pgxpool.Pool // past all faults
	JS      jetstream.JetStream
	Account *oracle.Account
	Watch   *Watch
	Copies  *Copies
}

// Still is for how long nothing has to happen for what is missing to be missed. Deadlines, leases and redeliveries are shorter, or seen as
// what is still to come.
const Still = 6 * time.Second

// Settle waits until nothing is wrong and nothing is left to do, and returns nil; or what is wrong when nothing happens any more, when it can
// only stay wrong, or when ctx ends. The error is that it cannot be told.
func (r *Rest) Settle(ctx context.Context) ([]oracle.Violation, error) {
	since := time.Now()
	busy := "nothing was looked at"
	for {
		state, err := r.look(ctx)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if state.busy != "" {
			busy, since = state.busy, time.Now()
		}
		violations := r.Account.Judge(state.parked)
		lasting := state.read && slices.ContainsFunc(violations, func(v oracle.Violation) bool { return !v.Passing() })
		switch {
		case ctx.Err() != nil && len(violations) == 0:
			return nil, fmt.Errorf("not at rest: %s", busy)
		case ctx.Err() != nil, lasting, min(time.Since(since), r.Account.Quiet()) > Still:
			return violations, nil
		case len(violations) == 0 && state.busy == "":
			return nil, nil
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// state of the system, as its views and streams show it.
type state struct {
	parked []oracle.Parked
	busy   string // what is still to come; "": nothing
	read   bool   // all that was published
}

func (r *Rest) look(ctx context.Context) (s state, err error) {
	call, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var busy []string
	if s.read, err = r.Watch.CaughtUp(call); err != nil {
		return s, err
	}
	if !s.read {
		busy = append(busy, "not all that was published is read")
	}
	pending, err := r.pending(call)
	if err != nil {
		pending = "the consumers do not answer: " + err.Error()
	}
	if pending != "" {
		busy = append(busy, pending)
	}
	var working, outbox int
	err = r.DB.QueryRow(call, `select (select count(*) from pointsman.v_instances where status in ('runnable', 'executing') or deadline is not null),
  (select count(*) from pointsman.outbox)`).Scan(&working, &outbox)
	if err == nil {
		s.parked, err = r.parked(call)
	}
	switch {
	case err != nil:
		busy = append(busy, "the database does not answer: "+err.Error())
	case working > 0:
		busy = append(busy, fmt.Sprintf("%d instances work", working))
	case outbox > 0:
		busy = append(busy, fmt.Sprintf("%d messages are to be published", outbox))
	}
	// Last, as what leaves the outbox after it was counted is still to be looked for.
	switch settled, err := r.Copies.Settle(call); {
	case err != nil:
		busy = append(busy, "what left the outbox is not known: "+err.Error())
	case !settled:
		busy = append(busy, "not all that left the outbox was looked for")
	}
	s.busy = strings.Join(busy, "; ")
	return s, nil
}

// evidence is what the tables have of what is not at rest, and the first of each kind.
const evidence = `
select 'outbox', count(*)::text || ' of kind ' || kind || ', dead ' || dead || ', attempts ' || max(attempts) || ', refusals ' || max(refusals) || ', last ' || coalesce(max(last_error), '') from pointsman.outbox group by kind, dead
union all (select 'in the outbox', row_to_json(o)::text from (select id, shard, attempts, next_at, kind, instance_id, subject, msg_id, last_error from pointsman.outbox order by id limit 40) o)
union all (select 'shard of the outbox', row_to_json(s)::text from pointsman.outbox_shards s)
union all (select 'not ended', row_to_json(i)::text from (select * from pointsman.v_instances where status not in ('done', 'failed', 'canceled') order by inserted_at limit 40) i)
union all (select 'in an inbox', row_to_json(b)::text from (select * from pointsman.v_inbox limit 40) b)`

// Evidence is a text for who has to find out what went wrong.
func (r *Rest) Evidence(ctx context.Context) (string, error) {
	rows, err := r.DB.Query(ctx, evidence)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var what, text string
	_, err = pgx.ForEachRow(rows, []any{&what, &text}, func() error {
		_, err := fmt.Fprintf(&b, "%s: %s\n", what, text)
		return err
	})
	return b.String(), err
}

// pending is what the routes have not taken in.
func (r *Rest) pending(ctx context.Context) (string, error) {
	for _, stream := range []string{Stream, OrderedStream} {
		st, err := r.JS.Stream(ctx, stream)
		if err != nil {
			return "", err
		}
		consumers := st.ListConsumers(ctx)
		pending := ""
		for c := range consumers.Info() { // to its end: who leaves it leaves a goroutine behind
			if strings.HasPrefix(c.Name, "pointsman-") && c.NumPending+uint64(c.NumAckPending) > 0 {
				pending = fmt.Sprintf("%s has %d messages to read and %d to ack", c.Name, c.NumPending, c.NumAckPending)
			}
		}
		if pending != "" {
			return pending, nil
		}
		if err := consumers.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return "", err
		}
	}
	return "", nil
}

// parked are the instances that wait, with their inboxes.
func (r *Rest) parked(ctx context.Context) ([]oracle.Parked, error) {
	rows, err := r.DB.Query(ctx, `select i.id::text, coalesce(i.correlation_key, ''), s.id, s.name, s.payload
from pointsman.v_instances i join pointsman.v_inbox s on s.instance_id = i.id where i.status = 'awaiting_signal' order by i.id, s.id`)
	if err != nil {
		return nil, err
	}
	var parked []oracle.Parked
	var p oracle.Parked
	var s oracle.Seen
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&p.Instance, &p.Key, &s.ID, &s.Name, &payload}, func() error {
		s.Event = eventIn(payload)
		if n := len(parked); n > 0 && parked[n-1].Instance == p.Instance {
			parked[n-1].Inbox = append(parked[n-1].Inbox, s)
			return nil
		}
		parked = append(parked, oracle.Parked{Instance: p.Instance, Key: p.Key, Inbox: []oracle.Seen{s}})
		return nil
	})
	return parked, err
}

func eventIn(payload json.RawMessage) string {
	var p struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(payload, &p); err != nil || p.Event == "" {
		return fmt.Sprintf("no event in %s", payload)
	}
	return p.Event
}
