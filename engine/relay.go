package engine

import (
	"context"
	"time"
)

var _ Outbox = (*Client)(nil)

// HoldShards implements [Outbox].
func (c *Client) HoldShards(ctx context.Context, relay string, ttl time.Duration) ([]int, error) {
	return c.store.HoldShards(ctx, relay, ttl)
}

// ReleaseShards implements [Outbox].
func (c *Client) ReleaseShards(ctx context.Context, relay string) error {
	return c.store.ReleaseShards(ctx, relay)
}

// Publications implements [Outbox].
func (c *Client) Publications(ctx context.Context, shards []int, after int64, n int) ([]Publication, error) {
	rows, err := c.store.Outbox(ctx, shards, after, n)
	if err != nil {
		return nil, err
	}
	ps := make([]Publication, len(rows))
	for i, r := range rows {
		ps[i] = Publication{
			ID: r.ID, InstanceID: r.InstanceID, Kind: PublicationKind(r.Kind), Project: r.Project, Subject: r.Subject, MsgID: r.MsgID,
			Headers: r.Headers, Body: r.Body, Attempts: r.Attempts, Refusals: r.Refusals, CreatedAt: r.CreatedAt,
		}
	}
	return ps, nil
}

// Published implements [Outbox].
func (c *Client) Published(ctx context.Context, ids []int64) error {
	return c.store.Published(ctx, ids)
}

// Postpone implements [Outbox].
func (c *Client) Postpone(ctx context.Context, id int64, delay time.Duration, reason string, why Postponement) error {
	return c.store.Postpone(ctx, id, delay, clean(reason), why != PostponedByOutage, why == GivenUp)
}

// OutboxDepth implements [Outbox].
func (c *Client) OutboxDepth(ctx context.Context) (int, error) { return c.store.OutboxDepth(ctx) }
