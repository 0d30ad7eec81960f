package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/subjects"
)

// published is the acknowledgement of a stream.
type published struct {
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"` // the stream has a message with this Nats-Msg-Id: nothing was stored
}

func publishCommand(o *options) *cobra.Command {
	n := o.connection()
	var id string
	var flags []string
	c := &cobra.Command{
		Use: "publish SUBJECT DATA", Short: "Publish a message to JetStream",
		Long: `publish stores a message in the stream that takes its subject, as any NATS client could. DATA is the body: text, @FILE, or - for the
standard input. "pointsman message STREAM SEQ" shows what became of it.`,
		Example: `  pointsman publish orders.1001.placed '{"amount": 42, "items": 1}'
  pointsman publish payments.1001.confirmed @payment.json --msg-id evt-7`,
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := subjects.ValidSubject(args[0]); err != nil {
				return usage(c, err)
			}
			msg := nats.NewMsg(args[0])
			values, err := headers(c, flags)
			if err != nil {
				return err
			}
			for name, value := range values {
				msg.Header[name] = value
			}
			if id != "" {
				msg.Header.Set(subjects.HeaderMsgID, id)
			}
			if msg.Data, err = content(c, args[1]); err != nil {
				return err
			}
			return n.runNATS(c, func(ctx context.Context, s *session) error { return s.publish(ctx, msg) })
		},
	}
	c.Flags().StringVar(&id, "msg-id", "", "Nats-Msg-Id: a second message with the same one is a duplicate")
	c.Flags().StringArrayVar(&flags, "header", nil, "\"Name: value\"; may be repeated")
	return n.addNATS(c)
}

func (s *session) publish(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	js, err := jetstream.New(s.conn)
	if err != nil {
		return err
	}
	ack, err := js.PublishMsg(ctx, msg)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream takes %s: create one whose subjects include it", msg.Subject)
	case err != nil:
		return fmt.Errorf("publish to %s: %w", msg.Subject, err)
	case s.json:
		return s.document(s.out, published{ack.Stream, ack.Sequence, ack.Duplicate})
	}
	note := ""
	if ack.Duplicate {
		note = ", a duplicate: the stream had it already"
	}
	_, err = fmt.Fprintf(s.out, "published to %s, sequence %d%s\n", ack.Stream, ack.Sequence, note)
	return err
}
