package engine

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/subjects"
)

// Publish sends a message to a JetStream subject, at least once, with the same Nats-Msg-Id each time, which it returns: that of the
// headers, or else a new one. data is JSON unless it is a []byte, at most 1 MiB. It goes out by way of the outbox, independently of all
// other messages. The error is an [*InvalidError] where no stream could ever take the message.
func (c *Client) Publish(ctx context.Context, subject string, data any, headers map[string][]string) (msgID string, err error) {
	msgID, err = publish(ctx, c.store, subject, data, headers)
	if err == nil {
		c.Wake(OutboxQueue)
	}
	return msgID, err
}

// PublishTx is Publish inside a transaction of the caller's, which must be READ COMMITTED. A [Client.Wake] of [OutboxQueue] after the
// commit spares the relay's poll interval.
func (c *Client) PublishTx(ctx context.Context, tx pgx.Tx, subject string, data any, headers map[string][]string) (msgID string, err error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return "", err
	}
	return publish(ctx, st, subject, data, headers)
}

func publish(ctx context.Context, st *store.Store, subject string, data any, headers map[string][]string) (string, error) {
	if err := subjects.ValidSubject(subject); err != nil {
		return "", &InvalidError{Field: "subject", Reason: err.Error()}
	}
	if err := checkHeaders(headers); err != nil {
		return "", err
	}
	body, err := publicationBody(data)
	if err != nil {
		return "", err
	}
	id := uuid.NewString()
	if err := st.Publish(ctx, DefaultProject, []string{id}, []store.Publish{{Subject: subject, Headers: headers, Body: body}}); err != nil {
		return "", fmt.Errorf("publish: %w", err)
	}
	if own := headers[subjects.HeaderMsgID]; len(own) > 0 && own[0] != "" {
		id = own[0]
	}
	return id, nil
}

func publicationBody(data any) ([]byte, error) {
	if body, ok := data.([]byte); ok {
		if len(body) > ident.MaxJSON {
			return nil, &InvalidError{Field: "data", Reason: fmt.Sprintf("has %d bytes: at most %d", len(body), ident.MaxJSON)}
		}
		return append([]byte{}, body...), nil
	}
	body, err := ident.Encode(data)
	if err == nil {
		err = ident.JSON("data", body, ident.MaxJSON)
	}
	return body, err
}

// checkHeaders: names are printable ASCII without a colon, values have no control characters, which would begin another header.
func checkHeaders(headers map[string][]string) error {
	for name, values := range headers {
		bad := name == ""
		for i := range len(name) {
			bad = bad || name[i] <= ' ' || name[i] >= 0x7f || name[i] == ':'
		}
		if bad {
			return &InvalidError{Field: "headers", Reason: fmt.Sprintf("%q is no name of a header: use printable ASCII without spaces and colons", name)}
		}
		for _, v := range values {
			for i := range len(v) {
				if v[i] < ' ' || v[i] == 0x7f {
					return &InvalidError{Field: "headers", Reason: name + " has a control character: remove it"}
				}
			}
		}
	}
	return nil
}
