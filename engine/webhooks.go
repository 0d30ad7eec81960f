package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// WebhooksQueue is what a [Waker] is poked with when there are new webhooks to send.
const WebhooksQueue = ident.WebhooksQueue

// DeliveryStatus of a webhook.
type DeliveryStatus string

const (
	DeliveryPending   DeliveryStatus = "pending"   // it is to be sent, or to be sent again
	DeliveryDelivered DeliveryStatus = "delivered" // the receiver has answered with a status of 2xx
	DeliveryFailed    DeliveryStatus = "failed"    // it is not sent any more, unless somebody asks for that
)

// Delivery is a webhook, and what became of it so far.
type Delivery struct {
	ID         uuid.UUID
	Project    string
	Status     DeliveryStatus
	Attempts   int // that had a result, since the last retry
	Source     string
	SourceID   uuid.UUID // of the trigger or instance
	URL        string
	Type       string // as "instance.done"
	LastStatus int    // of HTTP, of the last attempt; 0: there was no answer
	LastError  string // why the last attempt was none; of a retried one until the next
	Response   string // the beginning of the last answer
	CreatedAt  time.Time
	UpdatedAt  time.Time
	NextAt     time.Time       // of a pending one: when it is due, or when a sender that has it will have lost it
	Body       json.RawMessage // of [Client.Delivery]
}

// Deliveries returns up to limit webhooks of a project (zero: DefaultProject) with a status (zero: any) that are older than the one
// before, the newest first; uuid.Nil is from the newest on.
func (c *Client) Deliveries(ctx context.Context, project string, status DeliveryStatus, before uuid.UUID, limit int) ([]Delivery, error) {
	if project == "" {
		project = DefaultProject
	}
	if !slices.Contains([]DeliveryStatus{"", DeliveryPending, DeliveryDelivered, DeliveryFailed}, status) {
		return nil, &InvalidError{Field: "status", Reason: fmt.Sprintf("%q is none of pending, delivered, failed", status)}
	}
	if err := ident.Token("project", project); err != nil {
		return nil, err
	}
	rows, err := c.store.Deliveries(ctx, project, string(status), before, limit)
	if err != nil {
		return nil, fmt.Errorf("deliveries: %w", err)
	}
	out := make([]Delivery, len(rows))
	for i, d := range rows {
		out[i] = deliveryOf(d)
	}
	return out, nil
}

// Delivery returns one webhook of a project, with its body. The error is [ErrNotFound] where there is none.
func (c *Client) Delivery(ctx context.Context, project string, id uuid.UUID) (Delivery, error) {
	return delivery(ctx, c.store, project, id)
}

func delivery(ctx context.Context, st *store.Store, project string, id uuid.UUID) (Delivery, error) {
	if project == "" {
		project = DefaultProject
	}
	d, found, err := st.DeliveryByID(ctx, project, id)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("delivery: %w", err)
	}
	return deliveryOf(d), nil
}

func deliveryOf(d store.WebhookDelivery) Delivery {
	return Delivery{
		ID: d.ID, Project: d.Project, Status: DeliveryStatus(d.Status), Attempts: d.Attempts, Source: d.Source, SourceID: d.SourceID, URL: d.URL, Type: d.Type,
		LastStatus: d.LastStatus, LastError: d.LastError, Response: d.Response, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, NextAt: d.NextAt, Body: d.Body,
	}
}

// RetryDeliveries sends failed webhooks of a project again: at once, with all their attempts before them. It returns for each whether it
// is, in order: nil, [ErrNotFound], or a [*ConflictError] where it has not failed.
func (c *Client) RetryDeliveries(ctx context.Context, project string, ids []uuid.UUID) ([]error, error) {
	verdicts, err := retryDeliveries(ctx, c.store, project, ids)
	if slices.Contains(verdicts, nil) {
		c.Wake(WebhooksQueue)
	}
	return verdicts, err
}

func retryDeliveries(ctx context.Context, st *store.Store, project string, ids []uuid.UUID) ([]error, error) {
	if project == "" {
		project = DefaultProject
	}
	had, err := st.RetryDeliveries(ctx, project, ids)
	if err != nil {
		return nil, fmt.Errorf("retry deliveries: %w", err)
	}
	verdicts := make([]error, len(ids))
	for i, id := range ids {
		switch status := had[id]; DeliveryStatus(status) {
		case DeliveryFailed:
		case "":
			verdicts[i] = ErrNotFound
		default:
			verdicts[i] = &ConflictError{Reason: fmt.Sprintf("webhook delivery %s is %s: only failed ones can be retried", id, status)}
		}
	}
	return verdicts, nil
}

// RetryDelivery is RetryDeliveries for one, which it returns as it is before the first of its new attempts.
func (c *Client) RetryDelivery(ctx context.Context, project string, id uuid.UUID) (d Delivery, err error) {
	err = c.store.InScopes(ctx, nil, func(tx *store.Store) error {
		verdicts, err := retryDeliveries(ctx, tx, project, []uuid.UUID{id})
		if err = errors.Join(append(verdicts, err)...); err != nil {
			return err
		}
		d, err = delivery(ctx, tx, project, id)
		return err
	})
	if err != nil {
		return Delivery{}, err
	}
	c.Wake(WebhooksQueue)
	return d, nil
}
