package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ClaimedDelivery is one that this sender may send, until its claim ends.
type ClaimedDelivery struct {
	ID       uuid.UUID
	Claim    int32 // the fence of its result
	Host     string
	URL      string
	Attempts int // that it had before
	Body     []byte
}

// DeliveryClaim asks for deliveries that are due.
type DeliveryClaim struct {
	After   string         // the host that the last claim came to: the next ones are looked at, in turn
	PerHost int            // how many to one host,
	Room    map[string]int // and where it is another number
	Limit   int            // how many at all
	For     time.Duration  // when what has no result by then is due again
}

// ClaimDeliveries takes deliveries that are due, so many a host, of the next 256 hosts that have any. next is the host that it came to; "": the last one there is. wait is how
// long it is until anything is due, 0 where something is that the claim did not take, at most limit.
func (s *Store) ClaimDeliveries(ctx context.Context, c DeliveryClaim, limit time.Duration) (out []ClaimedDelivery, next string, wait time.Duration, err error) {
	hosts, room := make([]string, 0, len(c.Room)), make([]int32, 0, len(c.Room))
	for host, n := range c.Room {
		hosts, room = append(hosts, host), append(room, int32(n))
	}
	err = s.together(ctx,
		statement{"claim deliveries", s.text.claimDeliveries, []any{c.After, hosts, room, c.PerHost, c.Limit, c.For}, func(r pgx.Rows) error {
			var id *uuid.UUID
			var claim *int32
			var attempts *int
			var host, url, body *string
			if err := r.Scan(&next, &id, &claim, &host, &url, &attempts, &body); err != nil || id == nil {
				return err
			}
			out = append(out, ClaimedDelivery{ID: *id, Claim: *claim, Host: *host, URL: *url, Attempts: *attempts, Body: []byte(*body)})
			return nil
		}},
		statement{"next delivery", s.text.nextDelivery, []any{limit}, func(r pgx.Rows) error { return r.Scan(&wait) }})
	if err != nil {
		return nil, c.After, 0, err
	}
	return out, next, max(0, wait), nil
}

// claimDeliveriesText ($1 after this host, $2 hosts with another room, $3 how much, $4 room of the others, $5 limit, $6 length of the
// claim) goes from host to host in the index, and takes of each what is due, so that neither what waits for one host nor what is due later
// is read on the way to the others. Where the limit ends it early, it has come to the last host that it took something of. There is one
// row at least, with the host it came to.
const claimDeliveriesText = `
with recursive /* claim deliveries */ hosts as (
  (select d.host, 1 as n from pointsman.webhook_deliveries d where d.status = 'pending' and d.host > $1 order by d.host limit 1)
  union all
  select x.host, h.n + 1 from hosts h cross join lateral (
    select d.host from pointsman.webhook_deliveries d where d.status = 'pending' and d.host > h.host order by d.host limit 1) x
  where h.n < 256
), room as materialized (
  select h.host, coalesce((select b.room from unnest($2::text[], $3::int[]) b(host, room) where b.host = h.host limit 1), $4::int) as room from hosts h
), due as materialized (
  select d.id, d.host from room r cross join lateral (
    select d.id, d.host from pointsman.webhook_deliveries d
    where d.status = 'pending' and d.host = r.host and d.next_at <= now() order by d.next_at limit r.room for update skip locked) d
  limit $5
), u as (
  update pointsman.webhook_deliveries d set next_at = now() + $6::interval, claim = d.claim + 1
  where d.id = any(array(select id from due))
  returning d.id, d.claim, d.host, d.url, d.attempts, d.body::text
), place as materialized (
  select case when (select count(*) from due) >= $5 then (select max(host) from due)
    when (select count(*) from hosts) < 256 then '' else (select max(host) from hosts) end as host
)
select place.host, u.* from place left join u on true`

// nextDeliveryText ($1 limit).
const nextDeliveryText = `
select /* next delivery */ least(now() + $1::interval,
  (select next_at from pointsman.webhook_deliveries where status = 'pending' order by next_at limit 1)) - now()`

// DeliveryResult is what came of an attempt.
type DeliveryResult struct {
	ID         uuid.UUID
	Claim      int32
	Status     string        // pending: it is tried again,
	Delay      time.Duration // after this
	Uncounted  bool          // it was no attempt: only Status and Delay count
	LastStatus int           // of HTTP; 0: no answer
	LastError  string
	Response   string
}

// RecordDeliveries writes down what came of attempts. The result of a claim that ended, and that another sender has taken since, changes
// nothing.
func (s *Store) RecordDeliveries(ctx context.Context, rs []DeliveryResult) error {
	n := len(rs)
	ids, claims, statuses, delays, counts := make([]uuid.UUID, n), make([]int32, n), make([]string, n), make([]int64, n), make([]bool, n)
	codes, errs, responses := make([]int32, n), make([]string, n), make([]string, n)
	for i, r := range rs {
		ids[i], claims[i], statuses[i], delays[i], counts[i] = r.ID, r.Claim, r.Status, r.Delay.Microseconds(), !r.Uncounted
		codes[i], errs[i], responses[i] = int32(r.LastStatus), r.LastError, r.Response
	}
	return s.together(ctx, statement{"record deliveries", s.text.recordDeliveries, []any{ids, claims, statuses, delays, counts, codes, errs, responses}, nil})
}

// recordDeliveriesText (arrays: $1 ids, $2 claims, $3 statuses, $4 delays in microseconds, $5 whether they count, $6 HTTP statuses, $7
// errors, $8 responses). A trigger says itself what became of its webhook.
const recordDeliveriesText = `
with /* record deliveries */ r as materialized (
  select * from unnest($1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::boolean[], $6::int[], $7::text[], $8::text[])
    t(id, claim, status, delay, counts, last_status, last_error, response)
), lk as materialized (
  select d.id, d.claim, d.status from pointsman.webhook_deliveries d where d.id = any($1) order by d.id for update
), u as (
  update pointsman.webhook_deliveries d set status = r.status, attempts = d.attempts + r.counts::int, next_at = now() + r.delay * interval '1 microsecond', updated_at = now(),
    last_status = case when r.counts then nullif(r.last_status, 0) else d.last_status end,
    last_error = case when r.counts then nullif(r.last_error, '') else d.last_error end,
    response = case when r.counts then nullif(r.response, '') else d.response end
  from r where d.id = any(array(select id from lk where status = 'pending')) and d.id = r.id and d.claim = r.claim
  returning d.source, d.source_id, d.status
)` + tellTriggers

// tellTriggers has the triggers of the deliveries in u say what became of them.
const tellTriggers = `, told as materialized (
  select t.id, u.status from (select source_id, status from u where source = 'trigger') u
  cross join lateral (select t.id from pointsman.triggers t where t.id = u.source_id and t.notify_status is distinct from u.status) t order by t.id
), tr as (
  update pointsman.triggers t set notify_status = (select status from told where told.id = t.id) where t.id = any(array(select id from told))
)
select count(*) from u`

// GiveUpDeliveries makes failures of what has been due for so long and was not sent, at most 500 a host, and returns how many. It is for
// hosts that have not answered all that time.
func (s *Store) GiveUpDeliveries(ctx context.Context, hosts []string, overdue time.Duration, reason string) (n int, err error) {
	err = s.together(ctx, statement{"give up deliveries", s.text.giveUpDeliveries, []any{hosts, overdue, reason}, func(r pgx.Rows) error { return r.Scan(&n) }})
	return n, err
}

// giveUpDeliveriesText ($1 hosts, $2 for how long, $3 reason).
const giveUpDeliveriesText = `
with /* give up deliveries */ due as materialized (
  select d.id from unnest($1::text[]) h(host) cross join lateral (
    select d.id from pointsman.webhook_deliveries d
    where d.status = 'pending' and d.host = h.host and d.next_at <= now() - $2::interval order by d.next_at limit 500 for update skip locked) d
), u as (
  update pointsman.webhook_deliveries d set status = 'failed', updated_at = now(), last_error = $3 || coalesce(': ' || d.last_error, '')
  where d.id = any(array(select id from due)) returning d.source, d.source_id, d.status
)` + tellTriggers
