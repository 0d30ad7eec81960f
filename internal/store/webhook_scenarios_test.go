package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// tells has the end of instance n told.
func tells(n int) string {
	return fmt.Sprintf("update pointsman.instances set notify_url = 'https://receiver.test/' where id = '%s';\n", u(n))
}

func telling(o Outcome) Outcome {
	o.Notifies = true
	return o
}

// delivery n is pending, claimed so many times before, the last time until then.
func delivery(n, claim int, status, ends string) string {
	return fmt.Sprintf("insert into pointsman.webhook_deliveries (id, project, status, claim, next_at, source, source_id, url, type, body, updated_at) values ('%s', 'p', '%s', %d, now() + interval '%s', 'trigger', '%s', 'https://receiver.test/', 't', '{}', now() - interval '2 h');\n",
		u(n), status, claim, ends, u(n)) +
		fmt.Sprintf("insert into pointsman.triggers (id, project, event_key, status, source_type, trigger_type, timeout_secs, expires_at, notify_status) values ('%s', 'p', 'e', 'received', 'api', 'given', 1, now(), '%s');\n", u(n), status)
}

// sendingAll claims what is due, and records this of it.
func sendingAll(status string) op {
	return func(ctx context.Context, s *Store) error {
		rows, _, _, err := s.ClaimDeliveries(ctx, DeliveryClaim{PerHost: 8, Limit: 8, For: time.Hour}, time.Minute)
		if err != nil || len(rows) == 0 {
			return err
		}
		var rs []DeliveryResult
		for _, r := range rows {
			rs = append(rs, DeliveryResult{ID: r.ID, Claim: r.Claim, Status: status, Delay: time.Hour})
		}
		return s.RecordDeliveries(ctx, rs)
	}
}

// recording is of a claim that was made before.
func recording(n int, claim int32, status string) op {
	return func(ctx context.Context, s *Store) error {
		return s.RecordDeliveries(ctx, []DeliveryResult{{ID: u(n), Claim: claim, Status: status, Delay: time.Hour}})
	}
}

func retryingDeliveries(ns ...int) op {
	return func(ctx context.Context, s *Store) error {
		var ids []uuid.UUID
		for _, n := range ns {
			ids = append(ids, u(n))
		}
		_, err := s.RetryDeliveries(ctx, project, ids)
		return err
	}
}

func retiringDeliveries(ctx context.Context, s *Store) error {
	_, err := s.RetireDeliveries(ctx, time.Hour)
	return err
}

func givingUp(ctx context.Context, s *Store) error {
	_, err := s.GiveUpDeliveries(ctx, []string{"receiver.test"}, time.Hour, "down")
	return err
}

// webhooks are of ends that are told, and of senders that share what is to be sent.
func webhooks() []scenario {
	// Every end is told once, as what it was; who was retried since is live again.
	const toldOnce = `
		select e.id from (select h.instance_id as id, h.rev from pointsman.history h where h.outcome in ('done', 'stop', 'cancel')) e
		full join (select source_id as id, count(*) as n, array_agg(type) as types from pointsman.webhook_deliveries group by source_id) d using (id)
		left join pointsman.instances i using (id)
		group by e.id, d.n, d.types, i.status having count(e.rev) <> coalesce(d.n, 0) or i.status is not null and not 'instance.' || i.status = any(d.types)`
	const agrees = `
		select d.id from pointsman.webhook_deliveries d join pointsman.triggers t on t.id = d.source_id and t.notify_status <> d.status`
	const oneResult = `
		select id from pointsman.webhook_deliveries where attempts <> 1 or claim = 2 and status <> 'delivered'` + ` union all` + agrees
	due := delivery(1, 0, "pending", "-1 s") + delivery(2, 0, "pending", "-2 s")
	return []scenario{
		{"told end / cancel", leased(90, valid, 1) + tells(1), together(committing(telling(of(1, 90, OutcomeDone))), canceling(1)), toldOnce},
		{"told end / lease sweep", leased(90, expired, 1, 2) + tells(1) + tells(2), together(committing(telling(of(1, 90, OutcomeStop)), telling(of(2, 90, OutcomeDone))), sweepingLeases), toldOnce},
		{"told end, again as its answer was lost / cancel", leased(90, valid, 1) + tells(1), together(inTurn(committing(telling(of(1, 90, OutcomeDone))), committing(telling(of(1, 90, OutcomeDone)))), canceling(1)), toldOnce},
		{"told cancel, retry / told end", leased(90, valid, 1) + tells(1), together(inTurn(canceling(1), retrying(1)), committing(telling(of(1, 90, OutcomeStop)))), toldOnce},
		{"send / send", due, together(sendingAll("delivered"), sendingAll("delivered")), `select id from pointsman.webhook_deliveries where claim <> 1 or attempts <> 1 union all` + agrees},
		{"send / late result of a claim that ended", delivery(1, 1, "pending", "-1 s"), together(sendingAll("delivered"), recording(1, 1, "failed")), oneResult},
		{"send / late result / retry", delivery(1, 1, "pending", "-1 s"), together(sendingAll("delivered"), recording(1, 1, "failed"), retryingDeliveries(1)), agrees},
		{"results, crossing", delivery(1, 1, "pending", valid) + delivery(2, 1, "pending", valid), together(inTurn(recording(1, 1, "delivered"), recording(2, 1, "failed")), retryingDeliveries(2, 1)), agrees},
		{"webhook retry / retry / send", delivery(1, 1, "failed", "-1 s"), together(retryingDeliveries(1), retryingDeliveries(1), sendingAll("delivered")), `select id from pointsman.webhook_deliveries where attempts > 1 union all` + agrees},
		{"webhook retry / retirement", delivery(1, 1, "failed", "-1 s"), together(retryingDeliveries(1), retiringDeliveries), `select id from pointsman.webhook_deliveries where status <> 'pending' union all` + agrees},
		{"give up / send", delivery(1, 2, "pending", "-2 h") + delivery(2, 2, "pending", "-2 h"), together(givingUp, sendingAll("delivered")), `select id from pointsman.webhook_deliveries where attempts > 1 or status = 'pending' or claim = 3 and status <> 'delivered' union all` + agrees},
		{"give up / give up / retry", delivery(1, 1, "pending", "-2 h"), together(givingUp, givingUp, retryingDeliveries(1)), agrees},
	}
}

func webhookSabotages() []sabotage {
	edits := func(field func(*texts) *string, old, new string) []edit { return []edit{{field, old, new}} }
	record := func(t *texts) *string { return &t.recordDeliveries }
	return []sabotage{
		{"a commit tells nobody", edits(func(t *texts) *string { return &t.commitNotify }, "u.notify_url is not null", "false"), []string{"told end / cancel", "told end / lease sweep"}},
		{"a cancel tells nobody", edits(func(t *texts) *string { return &t.cancel }, "u.notify_url is not null", "false"), []string{"told end / cancel"}},
		{"claims lock no row", edits(func(t *texts) *string { return &t.claimDeliveries }, " for update skip locked", ""), []string{"send / send"}},
		{"results go by the id alone", edits(record, " and d.claim = r.claim", ""), []string{"send / late result of a claim that ended"}},
		{"triggers are not told", edits(record, "where t.id = any(array(select id from told))", "where false"), []string{"send / send"}},
		{"giving up locks no row", edits(func(t *texts) *string { return &t.giveUpDeliveries }, " for update skip locked", ""), []string{"give up / send"}},
	}
}
