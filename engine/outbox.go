package engine

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
)

// Publication is a row of the outbox: something a committed transaction wants to be published.
type Publication struct {
	ID         int64
	InstanceID uuid.UUID // publications of one instance go out one after the other, in the order of ID, while none is postponed
	Kind       PublicationKind
	Project    string
	Subject    string // as the effect gave it; of an outcome: "<machine>.<status>", to be put under the outcome subject
	MsgID      string // Nats-Msg-Id: the same each time this is published
	Headers    map[string][]string
	Body       []byte
	Attempts   int // that failed,
	Refusals   int // and those of them that were the row's own fault
	CreatedAt  time.Time
}

// PublicationKind says where a [Publication] goes.
type PublicationKind string

const (
	PublishOutcome    PublicationKind = "outcome" // to pointsman.outcome.<project>.<machine>.<status>
	PublishReply      PublicationKind = "reply"   // core NATS, to Subject
	PublishMessage    PublicationKind = "publish" // JetStream, to Subject
	PublishDeadLetter PublicationKind = "dead"    // to pointsman.dlq.<Subject>
)

// Outbox is the part of a [Client] that a relay needs. The outbox is cut into shards by instance; who holds a shard is the only
// one to publish from it.
type Outbox interface {
	// HoldShards gives this relay its fair share of the shards for the length of ttl and returns them. Call it again well before ttl.
	HoldShards(ctx context.Context, relay string, ttl time.Duration) ([]int, error)
	// ReleaseShards gives back all that this relay holds.
	ReleaseShards(ctx context.Context, relay string) error
	// Publications returns at most n rows of the shards that are due, with ids above after, by id. A row that stands behind one of
	// its instance and kind which an outage has postponed is not due; one that was refused holds up nothing.
	Publications(ctx context.Context, shards []int, after int64, n int) ([]Publication, error)
	// Published removes rows that are out.
	Published(ctx context.Context, ids []int64) error
	// Postpone counts a failed attempt of one row, and makes it due again after the delay.
	Postpone(ctx context.Context, id int64, delay time.Duration, reason string, why Postponement) error
	// OutboxDepth counts the rows that wait, at most 10,000.
	OutboxDepth(ctx context.Context) (int, error)
}

// Postponement says what a failed attempt to publish means for its row.
type Postponement int

const (
	PostponedByOutage  Postponement = iota // it could not be published by anybody: not counted against it
	PostponedByRefusal                     // counted in [Publication].Refusals
	GivenUp                                // dead: never due again, but visible
)

// OutboxQueue is what a [Waker] is poked with when the outbox has something new.
const OutboxQueue = ident.OutboxQueue
