package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// outboxShards is how many shards there are; a migration made their rows.
const outboxShards = 16

// Shards are all of them.
func Shards() []int {
	shards := make([]int, outboxShards)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// OutboxRow is something to be published.
type OutboxRow struct {
	ID         int64 // of the row, and its shard: id * outboxShards + shard
	InstanceID uuid.UUID
	Kind       string // outcome, reply, publish, dead
	Project    string
	Subject    string
	MsgID      string
	Headers    map[string][]string
	Body       []byte
	Attempts   int
	Refusals   int
	CreatedAt  time.Time
}

// HoldShards lets a relay own its fair share of the shards of the outbox until ttl is over, and returns them.
func (s *Store) HoldShards(ctx context.Context, relay string, ttl time.Duration) (shards []int, err error) {
	err = s.together(ctx,
		statement{"relay here", s.text.relayHere, []any{relay, ttl}, nil},
		statement{"hold shards", s.text.holdShards, []any{relay, ttl}, func(r pgx.Rows) error {
			var shard int
			err := r.Scan(&shard)
			shards = append(shards, shard)
			return err
		}})
	return shards, err
}

const relayHereText = `
with /* relay here */ gone as (
  delete from pointsman.relays where expires_at < now() - interval '1 minute' and name <> $1
)
insert into pointsman.relays (name, expires_at) values ($1, now() + $2::interval) on conflict (name) do update set expires_at = excluded.expires_at`

// holdShardsText ($1 relay, $2 ttl): its own first, up to the share of one among all the relays that are there; then free ones. What
// is over the share is given up. Rows are skipped where another relay decides at this moment.
const holdShardsText = `
with /* hold shards */ fair as materialized (
  select ceil((select count(*) from pointsman.outbox_shards)::numeric / greatest(1, (select count(*) from pointsman.relays where expires_at > now()))) as n
), lk as materialized (
  select shard, owner is not distinct from $1 and expires_at > now() as mine from pointsman.outbox_shards
  where owner = $1 or owner is null or expires_at <= now() for update skip locked
), ranked as (
  select shard, mine, row_number() over (order by mine desc, shard) as rank from lk
), u as (
  update pointsman.outbox_shards o set
    owner = case when r.rank <= fair.n then $1 end,
    expires_at = case when r.rank <= fair.n then now() + $2::interval else '-infinity' end
  from ranked r, fair where o.shard = r.shard and (r.mine or r.rank <= fair.n)
  returning o.shard, o.owner
)
select shard from u where owner is not null order by shard`

// ReleaseShards gives back what a relay owns.
func (s *Store) ReleaseShards(ctx context.Context, relay string) error {
	return s.together(ctx, statement{"release shards", s.text.releaseShards, []any{relay}, nil}, statement{"relay gone", s.text.relayGone, []any{relay}, nil})
}

const (
	releaseShardsText = `update /* release shards */ pointsman.outbox_shards set owner = null, expires_at = '-infinity' where owner = $1`
	relayGoneText     = `delete /* relay gone */ from pointsman.relays where name = $1`
)

// Publish puts messages into the outbox that are no instance's: they go out independently of one another.
func (s *Store) Publish(ctx context.Context, project string, msgIDs []string, ps []Publish) error {
	subjects, headers, bodies := make([]string, len(ps)), make([]*string, len(ps)), make([][]byte, len(ps))
	for i, p := range ps {
		text, err := headerText(p.Headers)
		if err != nil {
			return err
		}
		subjects[i], headers[i], bodies[i] = p.Subject, text, p.Body
	}
	return s.each(ctx, "publish", s.text.publish, nil, project, subjects, msgIDs, headers, bodies)
}

// publishText ($1 project; arrays: $2 subjects, $3 message ids, $4 headers, $5 bodies).
const publishText = `
insert /* publish */ into pointsman.outbox (shard, kind, project, subject, msg_id, headers, body)
select get_byte(convert_to(t.msg_id, 'UTF8'), length(convert_to(t.msg_id, 'UTF8')) - 1) & 15, 'publish', $1, t.subject, t.msg_id, t.headers, t.body
from unnest($2::text[], $3::text[], $4::text[], $5::bytea[]) with ordinality t(subject, msg_id, headers, body, ord) order by t.ord`

// Outbox returns at most n rows of these shards that are due, in order of id, after an id.
func (s *Store) Outbox(ctx context.Context, shards []int, after int64, n int) (rows []OutboxRow, err error) {
	err = s.each(ctx, "outbox", s.text.outbox, func(r pgx.Rows) error {
		var row OutboxRow
		var instance *uuid.UUID
		var headers *string
		var shard int64
		if err := r.Scan(&row.ID, &shard, &instance, &row.Kind, &row.Project, &row.Subject, &row.MsgID, &headers, &row.Body, &row.Attempts, &row.Refusals, &row.CreatedAt); err != nil {
			return err
		}
		row.ID = row.ID*outboxShards + shard
		if instance != nil {
			row.InstanceID = *instance
		}
		if headers != nil {
			if err := json.Unmarshal([]byte(*headers), &row.Headers); err != nil {
				return fmt.Errorf("headers of %d: %w", row.ID, err)
			}
		}
		rows = append(rows, row)
		return nil
	}, shards, after/outboxShards, n)
	return rows, err
}

// outboxText ($1 shards, $2 after, $3 how many) reads each shard by its index, and leaves out what stands behind a postponed row of
// the same instance and kind, row by row: not exists would be planned as an anti join with all that are postponed. A row that was
// refused holds up nothing: it may be refused for an hour, and the end of its instance has to be told meanwhile.
const outboxText = `
select /* outbox */ o.id, o.shard, o.instance_id, o.kind, o.project, o.subject, o.msg_id, o.headers, o.body, o.attempts, o.refusals, o.created_at
from unnest($1::smallint[]) t(shard) cross join lateral (
  select * from pointsman.outbox o where o.shard = t.shard and o.id > $2 and not o.dead and o.next_at <= now()
    and (select f.id from pointsman.outbox f where f.instance_id = o.instance_id and f.attempts > 0 and not f.dead and f.id < o.id and f.kind = o.kind and f.refusals = 0 limit 1) is null
  order by o.id limit $3) o
order by o.id limit $3`

// Published removes rows that are out.
func (s *Store) Published(ctx context.Context, rows []int64) error {
	return s.together(ctx, statement{"published", s.text.published, []any{rows, outboxShards}, nil})
}

const publishedText = `
delete /* published */ from pointsman.outbox where ctid = any(array(
  select o.ctid from unnest($1::bigint[]) t(row) cross join lateral (
    select o.ctid from pointsman.outbox o where o.shard = t.row % $2 and o.id = t.row / $2 limit 1) o))`

// Postpone counts a failure to publish a row, which may have been refused, and makes it due again after the delay, or never.
func (s *Store) Postpone(ctx context.Context, row int64, delay time.Duration, reason string, refused, dead bool) error {
	return s.together(ctx, statement{"postpone", s.text.postpone, []any{row % outboxShards, row / outboxShards, delay, reason, refused, dead}, nil})
}

// postponeText counts up to what the columns hold: an outage may last.
const postponeText = `
update /* postpone */ pointsman.outbox set attempts = least(attempts, 32766) + 1, refusals = least(refusals, 32766) + $5::boolean::int, next_at = now() + $3::interval, last_error = $4, dead = $6 where shard = $1 and id = $2`

// OutboxDepth counts the rows that wait, at most MaxDepth.
func (s *Store) OutboxDepth(ctx context.Context) (n int, err error) {
	err = s.each(ctx, "outbox depth", s.text.outboxDepth, func(r pgx.Rows) error { return r.Scan(&n) }, MaxDepth)
	return n, err
}

const outboxDepthText = `select /* outbox depth */ count(*) from (select from pointsman.outbox where not dead limit $1) x`
