package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
)

func startCommand(o *options) *cobra.Command {
	n := o.connection()
	var start api.NewInstance
	var runAt, idempotency string
	var scope []string
	var wait time.Duration
	c := &cobra.Command{
		Use: "start MACHINE [STATE]", Short: "Start an instance of a machine",
		Long: `start creates an instance, which runs as soon as a worker has room. STATE is JSON, @FILE, or - for the standard input; without it,
the state is {}. Its id is printed; with --wait, the instance as get shows it, when it has ended or the time is up. A key that a live
instance holds, or a unique key that is held, is a conflict, which names the holder.`,
		Example: `  pointsman start order '{"amount": 42, "items": 1}' --key order-1001
  pointsman start order @order.json --idempotency-key checkout-77
  pointsman start order @order.json --wait 30s
  pointsman start reminder --run-at 2030-01-02T15:04:05Z
  pointsman start import @file.json --unique-key import-2030-01 --unique-scope runnable,executing,awaiting_signal,done`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: n.first(machineNames),
		RunE: func(c *cobra.Command, args []string) (err error) {
			start.Machine = args[0]
			if wait < 0 {
				return usage(c, fmt.Errorf("--wait %s: is negative", wait))
			}
			if start.State, err = documentArg(c, args, 1, "state"); err != nil {
				return err
			}
			if runAt != "" {
				at, err := time.Parse(time.RFC3339, runAt)
				if err != nil {
					return usage(c, fmt.Errorf("--run-at %q: want a time as 2030-01-02T15:04:05Z", runAt))
				}
				start.RunAt = &at
			}
			for _, status := range scope {
				start.UniqueScope = append(start.UniqueScope, engine.Status(status))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				var in api.Instance
				if err := s.ask(ctx, natsapi.VerbStart, start, &in, subjects.HeaderIdempotencyKey, idempotency); err != nil {
					return err
				}
				if wait > 0 {
					if in, err = s.get(ctx, in.ID, wait); err != nil {
						return err
					}
				}
				if s.json || wait > 0 {
					return s.show(in)
				}
				_, err := fmt.Fprintln(s.out, in.ID)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&start.CorrelationKey, "key", "", "correlation key: unique among the live instances of the project")
	f.IntVar(&start.Version, "machine-version", 0, "version of the machine (default: the newest)")
	f.StringVar(&start.Step, "step", "", "first step (default: the machine's)")
	f.StringVar(&start.Queue, "queue", "", "queue (default \"default\")")
	f.Int16Var(&start.Priority, "priority", 0, "lower is earlier")
	f.StringVar(&runAt, "run-at", "", "when it begins (default: now)")
	f.StringVar(&start.PartitionKey, "partition-key", "", "of the instances with one, one executes at a time")
	f.StringVar(&start.UniqueKey, "unique-key", "", "a second instance with it is a conflict while this one has a status of its scope")
	f.StringSliceVar(&scope, "unique-scope", nil, "statuses, comma-separated (default: the live ones)")
	f.StringVar(&start.ReplyTo, "reply-to", "", "subject that its outcome is published to, too")
	f.StringVar(&start.NotifyURL, "notify-url", "", "URL that is told its end, by webhook")
	f.DurationVar(&wait, "wait", 0, "wait for its end, at most this long")
	f.StringVar(&idempotency, "idempotency-key", "", "a second start with the same one gives the first one's instance")
	n.flag(c, "queue", queueNames)
	return n.add(c)
}

func signalCommand(o *options) *cobra.Command {
	n := o.connection()
	b := bulk{kind: engine.JobSignal}
	var signal api.NewSignal
	c := &cobra.Command{
		Use: "signal [REF] NAME [PAYLOAD]", Short: "Put a signal into the inbox of an instance",
		Long: `signal puts a signal into the inbox of a live instance. REF is its id, or key:<correlation key>. PAYLOAD is JSON, @FILE, or - for the
standard input; without it, the payload is null. With --dedup-key a second one is a duplicate, which counts for nothing.`,
		Example: `  pointsman signal key:order-1001 payment '{"amount": 42}'
  pointsman signal key:order-1001 payment @payment.json --dedup-key pay-7
  pointsman signal --all --machine order --status awaiting_signal closing`,
		Args: args(cobra.RangeArgs(1, 3)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := b.args(c, len(args), 1, 2); err != nil {
				return err
			}
			if b.all {
				if signal.DedupKey != "" {
					return usage(c, errors.New("--dedup-key goes with a REF: with --all each instance gets the signal once"))
				}
				all := engine.JobArgs{Name: args[0]}
				if all.Payload, err = documentArg(c, args, 1, "payload"); err != nil {
					return err
				}
				return b.run(c, n, all)
			}
			signal.CorrelationKey, signal.InstanceID = target(args[0])
			signal.Name = args[1]
			if signal.Payload, err = documentArg(c, args, 2, "payload"); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				var done api.Signaled
				if err := s.ask(ctx, natsapi.VerbSignal, signal, &done); err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, done)
				}
				_, err := fmt.Fprintf(s.out, "%s to %s\n", done.Result, done.InstanceID)
				return err
			})
		},
	}
	c.Flags().StringVar(&signal.DedupKey, "dedup-key", "", "a second signal with the same one does not count")
	b.add(c)
	return n.add(c)
}
