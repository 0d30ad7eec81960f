package engine

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// Webhooks is the part of a [Client] that a sender needs. Senders share the work by claims: while a claim stands nobody else is given
// what it holds, and the result of one that has ended and was taken by another since counts for nothing.
type Webhooks interface {
	// ClaimDeliveries takes deliveries that are due.
	ClaimDeliveries(ctx context.Context, c DeliveryClaim) (Claimed, error)
	// RecordDeliveries writes down what came of attempts.
	RecordDeliveries(ctx context.Context, rs []DeliveryResult) error
	// GiveUpDeliveries makes failures of what these hosts should have had so long ago, some of it, and returns how many.
	GiveUpDeliveries(ctx context.Context, hosts []string, overdue time.Duration, reason string) (int, error)
}

// DeliveryClaim says what a sender has room for.
type DeliveryClaim struct {
	After   string         // [Claimed.Next] of the claim before, so that they go from host to host
	PerHost int            // how many for one host,
	Room    map[string]int // and for these
	Limit   int            // how many at all
	For     time.Duration  // how long the claim stands
	Idle    time.Duration  // the most that Wait may be
}

// Claimed is what a sender has from a claim.
type Claimed struct {
	Deliveries []ClaimedDelivery
	Next       string        // the host that it came to; "": to the last there is
	Wait       time.Duration // until anything is due; 0: something is
}

// ClaimedDelivery is a webhook to be sent now.
type ClaimedDelivery struct {
	ID       uuid.UUID
	Claim    int32  // goes into its result
	Host     string // of the URL, with its port
	URL      string
	Attempts int // that it has had
	Body     []byte
}

// DeliveryResult is what came of an attempt.
type DeliveryResult struct {
	ID         uuid.UUID
	Claim      int32
	Status     DeliveryStatus // pending: it is due again
	Delay      time.Duration  // after this
	Uncounted  bool           // it was no attempt: the rest does not count
	LastStatus int            // of HTTP; 0: no answer
	LastError  string
	Response   string
}

var _ Webhooks = (*Client)(nil)

// ClaimDeliveries implements [Webhooks].
func (c *Client) ClaimDeliveries(ctx context.Context, claim DeliveryClaim) (Claimed, error) {
	rows, next, wait, err := c.store.ClaimDeliveries(ctx, store.DeliveryClaim{After: claim.After, PerHost: claim.PerHost, Room: claim.Room, Limit: claim.Limit, For: claim.For}, claim.Idle)
	out := Claimed{Next: next, Wait: wait, Deliveries: make([]ClaimedDelivery, len(rows))}
	for i, r := range rows {
		out.Deliveries[i] = ClaimedDelivery(r)
	}
	return out, err
}

// RecordDeliveries implements [Webhooks].
func (c *Client) RecordDeliveries(ctx context.Context, rs []DeliveryResult) error {
	rows := make([]store.DeliveryResult, len(rs))
	for i, r := range rs {
		rows[i] = store.DeliveryResult{
			ID: r.ID, Claim: r.Claim, Status: string(r.Status), Delay: r.Delay, Uncounted: r.Uncounted, LastStatus: r.LastStatus,
			LastError: clean(r.LastError), Response: clean(r.Response),
		}
	}
	return c.store.RecordDeliveries(ctx, rows)
}

// GiveUpDeliveries implements [Webhooks].
func (c *Client) GiveUpDeliveries(ctx context.Context, hosts []string, overdue time.Duration, reason string) (int, error) {
	return c.store.GiveUpDeliveries(ctx, hosts, overdue, reason)
}
