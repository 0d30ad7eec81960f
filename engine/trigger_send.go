package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// NewEvent is one to be sent to the trigger that waits for it.
type NewEvent struct {
	Project string // zero: DefaultProject
	Key     string
	Payload json.RawMessage // JSON, at most 1 MiB; nil is null
	// Hold is how long the event is kept for a trigger that is created later, where the key has never been used, or its triggers are purged; zero: it is
	// not. At most [MaxHold].
	Hold   time.Duration
	SentBy string // as shown with the trigger
}

// MaxHold is the longest that an event can be held.
const MaxHold = 365 * 24 * time.Hour

// EventReceipt says what became of an event.
type EventReceipt struct {
	Result    Result    // Delivered, Duplicate or Held
	Trigger   *Trigger  // of Delivered and Duplicate
	HeldUntil time.Time // of Held
}

func (e *NewEvent) check() (err error) {
	if e.Project, err = projectOf(e.Project); err != nil {
		return err
	}
	if err := errors.Join(ident.EventKey("event_key", e.Key), checkJSON("payload", e.Payload), checkSentBy(e.SentBy)); err != nil {
		return err
	}
	if e.Hold < 0 || e.Hold > MaxHold {
		return &InvalidError{Field: "hold", Reason: fmt.Sprintf("is %s: want 0s to %s", e.Hold, MaxHold)}
	}
	return nil
}

func checkSentBy(s string) error {
	if s == "" {
		return nil
	}
	return ident.Key("sent_by", s)
}

func (e *NewEvent) row() store.EventSend {
	return store.EventSend{Project: e.Project, Key: e.Key, Payload: e.Payload, SentBy: e.SentBy, Hold: e.Hold}
}

// SendEvent gives an event to the trigger that waits with its key, and wakes the instance that awaits it, in one transaction. Where
// the key's last trigger has received the same payload already (as JSON values) it is a Duplicate.
//
// The error is [ErrNoTrigger] where no trigger has the key and the event is not held, and a [*ConflictError] where the last one received
// another payload, timed out or was canceled, or another event is held for the key.
func (c *Client) SendEvent(ctx context.Context, e NewEvent) (EventReceipt, error) {
	r, ended, err := c.sendEvent(ctx, c.store, e)
	if err == nil {
		c.endedTriggers(ended)
	}
	return r, err
}

// SendEventTx is SendEvent inside a transaction of the caller's, which must be READ COMMITTED.
func (c *Client) SendEventTx(ctx context.Context, tx pgx.Tx, e NewEvent) (EventReceipt, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return EventReceipt{}, err
	}
	r, _, err := c.sendEvent(ctx, st, e)
	return r, err
}

func (c *Client) sendEvent(ctx context.Context, st *store.Store, e NewEvent) (r EventReceipt, ended []store.EndedTrigger, err error) {
	if err := e.check(); err != nil {
		return r, nil, err
	}
	err = st.InScopes(ctx, []uuid.UUID{store.EventScope(e.Project, e.Key)}, func(tx *store.Store) error {
		out, some, err := tx.SendEvents(ctx, []store.EventSend{e.row()})
		if err != nil {
			return err
		}
		d := out[0]
		if why := d.Refusal(e.Key); d.Verdict == store.Missing {
			return ErrNoTrigger
		} else if why != "" {
			return &ConflictError{Reason: why}
		}
		ended = some
		switch d.Verdict {
		case store.Held:
			r = EventReceipt{Result: Held, HeldUntil: d.Until}
			return nil
		case store.Duplicate:
			r.Result = Duplicate
		default:
			r.Result = Delivered
		}
		t, err := triggerByID(ctx, tx, d.Trigger)
		r.Trigger = &t
		return err
	})
	if err != nil {
		return EventReceipt{}, nil, fmt.Errorf("send event: %w", err)
	}
	return r, ended, nil
}

// prefixBytes is how many bytes of payloads one transaction writes: each trigger, and each inbox, has the payload.
const (
	prefixBatch = 200
	prefixBytes = 16 << 20
)

// SendEventPrefix gives an event to every trigger that waits, when it begins, with a key that starts with the prefix, and returns how many have
// received it by this call. It goes a few hundred in a transaction: with an error the count is of those that have it, and another call goes on
// with the rest.
func (c *Client) SendEventPrefix(ctx context.Context, project, prefix string, payload json.RawMessage, sentBy string) (received int, err error) {
	project, err = projectOf(project)
	if err = errors.Join(err, ident.Key("prefix", prefix), checkJSON("payload", payload), checkSentBy(sentBy)); err != nil {
		return 0, err
	}
	if payload == nil {
		payload = json.RawMessage("null")
	}
	n := min(prefixBatch, max(1, prefixBytes/len(payload)))
	var until *time.Time
	for after := ""; ; {
		ends, last, moment, err := c.store.TriggersWithPrefix(ctx, project, prefix, after, until, n)
		if err != nil {
			return received, wrap("send event", err)
		}
		until, after = &moment, last
		for i := range ends {
			ends[i].Payload, ends[i].SentBy = payload, sentBy
		}
		var ended []store.EndedTrigger
		if len(ends) > 0 {
			err = c.store.InScopes(ctx, nil, func(tx *store.Store) (err error) {
				ended, err = tx.EndTriggers(ctx, ends)
				return err
			})
		}
		if err != nil {
			return received, wrap("send event", err)
		}
		received += len(ended)
		c.endedTriggers(ended)
		if len(ends) < n {
			return received, nil
		}
	}
}
