package natsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/subjects"
)

// Client asks a [Service].
type Client struct {
	Conn     *nats.Conn
	Subjects subjects.Space
	Project  string // "": the service's default
}

// ErrNoService: no service answers.
var ErrNoService = errors.New("no pointsman bridge answers")

// Do sends a request and reads its answer into response, if that is not nil. headers are pairs of name and value; those without a value
// are left out. The error of a refusal is an [*api.Error]; [ErrNoService] says that nobody is there to answer.
func (c *Client) Do(ctx context.Context, verb string, request, response any, headers ...string) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	msg := nats.NewMsg(c.Subjects.API(verb))
	msg.Data = body
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			msg.Header.Set(headers[i], headers[i+1])
		}
	}
	if c.Project != "" {
		msg.Header.Set(subjects.HeaderProject, c.Project)
	}
	reply, err := c.Conn.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNoService
	case errors.Is(err, nats.ErrMaxPayload):
		return &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the request has %d bytes, and the NATS server carries %d", len(body), c.Conn.MaxPayload())}
	case err != nil:
		return fmt.Errorf("%s: %w", verb, err)
	}
	if reply.Header.Get(subjects.HeaderServiceErrorCode) != "" {
		return refusal(reply.Data)
	}
	if response == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Data, response); err != nil {
		return fmt.Errorf("%s: the answer cannot be read: %w", verb, err)
	}
	return nil
}

func refusal(body []byte) error {
	var b api.ErrorBody
	if err := json.Unmarshal(body, &b); err != nil || b.Error == nil {
		return fmt.Errorf("the answer is an error that cannot be read: %.200q", body)
	}
	return b.Error
}
