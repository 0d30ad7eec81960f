package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func heldCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	var request api.HeldRequest
	c := &cobra.Command{
		Use: "held", Short: "Show the signals for keys that nobody has yet",
		Long: `held shows signals that came before the instance they are for, in the order of their keys. The instance that starts with such a key gets
them; at the time under EXPIRES they become dead letters.`,
		Example: "  pointsman held\n  pointsman held --key order-1001 --json",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(p.check(c), oneOf(c, "key", "prefix")); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				page, err := collect(p, func(limit int, cursor string) (page api.Page[api.HeldSignal], err error) {
					request.Limit, request.Cursor = limit, cursor
					err = s.ask(ctx, natsapi.VerbHeld, request, &page)
					return page, err
				})
				if err != nil {
					return err
				}
				return show(s, page, heldTable)
			})
		},
	}
	c.Flags().StringVar(&request.CorrelationKey, "key", "", "for this correlation key")
	c.Flags().StringVar(&request.CorrelationPrefix, "prefix", "", "for correlation keys that begin so")
	p.add(c)
	return n.add(c)
}

func heldTable(items []api.HeldSignal) *table {
	t := newTable("KEY", "NAME", "ROUTE", "SINCE", "EXPIRES", "PAYLOAD")
	for _, h := range items {
		t.add(short(h.CorrelationKey, 40), h.Name, text(h.Route), clock(h.InsertedAt), clock(h.ExpiresAt), short(string(h.Payload), 80))
	}
	return t
}

func dlqCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "dlq", Short: "Show, replay and drop dead letters: messages that no inbox could take", Args: args(cobra.NoArgs),
		Example: "  pointsman dlq list --route payments\n  pointsman dlq show 7\n  pointsman dlq replay 7",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(dlqListCommand(o), dlqShowCommand(o), dlqReplayCommand(o), dlqDropCommand(o))
	return c
}

func dlqListCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	var request api.DeadLettersRequest
	c := &cobra.Command{
		Use: "list", Short: "List dead letters, the latest first",
		Long:    "list shows why each was refused, and where the message stood. SEQ is what show wants.",
		Example: "  pointsman dlq list\n  pointsman dlq list --route payments --limit 10",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.check(c); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				page, err := collect(p, func(limit int, cursor string) (page api.Page[api.DeadLetter], err error) {
					request.Limit, request.Cursor = limit, cursor
					err = s.ask(ctx, natsapi.VerbDeadLetters, request, &page)
					return page, err
				})
				if err != nil {
					return err
				}
				return show(s, page, func(items []api.DeadLetter) *table {
					t := newTable("SEQ", "ROUTE", "AT", "SUBJECT", "MESSAGE", "REASON")
					for _, l := range items {
						t.add(fmt.Sprint(l.Seq), l.Route, clock(l.At), short(text(l.Subject), 40), place(text(l.Stream), l.StreamSeq), short(l.Reason, 100))
					}
					return t
				})
			})
		},
	}
	c.Flags().StringVar(&request.Route, "route", "", "of this route")
	p.add(c)
	n.flag(c, "route", routeNames)
	return n.add(c)
}

func place(stream string, seq uint64) string {
	if stream == "" {
		return ""
	}
	return stream + " " + strconv.FormatUint(seq, 10)
}

func dlqShowCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "show SEQ", Short: "Show a dead letter with its content",
		Long:    "show prints why the message was refused, its headers and its body.",
		Example: "  pointsman dlq show 7\n  pointsman dlq show 7 --json | jq .data",
		Args:    args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			seq, err := sequence(c, args[0])
			if err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				var l api.DeadLetterContent
				if err := s.ask(ctx, natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: seq}, &l); err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, l)
				}
				return s.print(s.out, letterTable(l))
			})
		},
	}
	return n.add(c)
}

func letterTable(l api.DeadLetterContent) *table {
	t := newTable()
	t.add("seq", fmt.Sprint(l.Seq))
	t.add("route", l.Route)
	t.add("reason", l.Reason)
	t.pair("message", place(text(l.Stream), l.StreamSeq))
	t.pair("subject", text(l.Subject))
	t.pair("message id", text(l.MsgID))
	t.add("deliveries", fmt.Sprint(l.Deliveries))
	t.add("at", clock(l.At))
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		t.add("header", name+": "+strings.Join(l.Headers[name], ", "))
	}
	switch {
	case l.Data != nil:
		t.add("body", string(l.Data))
	case l.Text != nil:
		t.add("body", *l.Text)
	default:
		t.add("body", fmt.Sprintf("%q", l.Base64))
	}
	return t
}

func sequence(c *cobra.Command, arg string) (uint64, error) {
	seq, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || seq == 0 {
		return 0, usage(c, fmt.Errorf("%q is no sequence: want a number from 1", arg))
	}
	return seq, nil
}

func messageCommand(o *options) *cobra.Command {
	n := o.connection()
	var request api.MessageRequest
	var wait time.Duration
	c := &cobra.Command{
		Use: "message STREAM SEQ | message --msg-id ID", Short: "Show what became of a message",
		Long: `message reads a message again, maps it as the routes do now, and looks for what they made of it: started, delivered, duplicate, conflict,
held, filtered, dropped or dead-lettered; pending where it is not taken in yet, and unknown where nothing is on record of it (any more).
With --msg-id the last 50,000 messages of each stream are looked through.`,
		Example: "  pointsman message PAYMENTS 1042\n  pointsman message PAYMENTS 1042 --wait 10s\n  pointsman message --msg-id evt-7 --stream PAYMENTS --json",
		Args:    args(cobra.MaximumNArgs(2)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) (err error) {
			switch {
			case len(args) == 2 && request.MsgID == "" && request.Stream == "":
				request.Stream = args[0]
				if request.Seq, err = sequence(c, args[1]); err != nil {
					return err
				}
			case len(args) > 0 || request.MsgID == "":
				return usage(c, errors.New("want STREAM and SEQ, or --msg-id"))
			case wait < 0:
				return usage(c, fmt.Errorf("--wait %s: is negative", wait))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				m, err := s.message(ctx, request, wait)
				if err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, m)
				}
				return s.print(s.out, messageTable(m))
			})
		},
	}
	c.Flags().StringVar(&request.MsgID, "msg-id", "", "its Nats-Msg-Id")
	c.Flags().DurationVar(&wait, "wait", 0, "wait until no route has it pending, at most this long")
	c.Flags().StringVar(&request.Stream, "stream", "", "with --msg-id: look in this stream only")
	return n.add(c)
}

// message asks what became of a message, until that is decided or the time is up.
func (s *session) message(ctx context.Context, request api.MessageRequest, wait time.Duration) (m api.Message, err error) {
	for until := time.Now().Add(wait); ; {
		m = api.Message{}
		err = s.ask(ctx, natsapi.VerbMessage, request, &m)
		pending := slices.ContainsFunc(append([]api.Message{m}, m.Others...), func(m api.Message) bool { return m.Fate == bridge.FatePending })
		if err != nil || !pending || time.Now().After(until) {
			return m, err
		}
		if err := idle(ctx, watchInterval); err != nil {
			return m, err
		}
	}
}

func messageTable(m api.Message) *table {
	t := newTable()
	t.add("message", place(m.Stream, m.Seq))
	t.pair("message id", text(m.MsgID))
	t.add("subject", m.Subject)
	for _, m := range append([]api.Message{m}, m.Others...) {
		t.pair("route", text(m.Route))
		t.add("fate", m.Fate)
		t.pair("reason", text(m.Reason))
		t.pair("instance", text(m.InstanceID))
		t.pair("signal", text(m.SignalID))
		if by := m.ConsumedBy; by != nil {
			t.add("consumed by", fmt.Sprintf("step %s at %s, rev %d", by.Step, clock(by.At), by.Rev))
		}
		t.pair("at", clockOf(m.At))
	}
	return t
}
