package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func cancelCommand(o *options) *cobra.Command {
	n := o.connection()
	b := bulk{kind: engine.JobCancel}
	var request api.CancelRequest
	c := &cobra.Command{
		Use: "cancel [REF]", Short: "End an instance",
		Long: `cancel ends an instance and empties its inbox; what its step is doing right now commits nothing. One that has ended stays as it ended.
Its children go on, unless with --children, which ends what is live below it, also where it has ended itself before. With --all --children what
is live below each that the job ends is ended too, and not counted.
REF is its id, or key:<correlation key>.`,
		Example: "  pointsman cancel key:order-1001 --reason 'the customer called'\n  pointsman cancel key:import-7 --children\n  pointsman cancel --all --machine import --children\n  pointsman cancel --all --machine order --status awaiting_signal --inserted-before 720h",
		Args:    args(cobra.MaximumNArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := b.args(c, len(args), 0, 0); err != nil {
				return err
			}
			if b.all {
				return b.run(c, n, engine.JobArgs{Reason: request.Reason, Children: request.Children})
			}
			request.Ref = args[0]
			return n.run(c, func(ctx context.Context, s *session) error {
				return s.operate(ctx, natsapi.VerbCancel, request)
			})
		},
	}
	c.Flags().StringVar(&request.Reason, "reason", "", "is kept as its last error")
	c.Flags().BoolVar(&request.Children, "children", false, "cancel its children too, and theirs")
	b.add(c)
	return n.add(c)
}

func retryCommand(o *options) *cobra.Command {
	return operateCommand(o, engine.JobRetry, natsapi.VerbRetry, &cobra.Command{
		Use: "retry [REF]", Short: "Run the step of a failed or canceled instance again",
		Long: `retry makes a failed or canceled instance live again: its step runs from its first attempt, and is handed again what it was handed last.
One that was canceled while it waited waits again. It is not paused then. A conflict says that it has not ended, is done, or that another
instance has its correlation key. REF is its id, or key:<correlation key>, the last one that had it.`,
		Example: "  pointsman retry key:order-1001\n  pointsman retry key:order-1001 --json | jq .last_error\n  pointsman retry --all --machine order --status failed --rate 50 --yes --wait",
	})
}

func pauseCommand(o *options) *cobra.Command {
	return operateCommand(o, engine.JobPause, natsapi.VerbPause, &cobra.Command{
		Use: "pause [REF]", Short: "Keep an instance from running, while its inbox fills",
		Long: `pause keeps an instance from running until it is resumed: signals reach its inbox and wake nothing, and no deadline fires. What its step is
doing right now goes on and counts. One that has ended is a conflict. REF is its id, or key:<correlation key>.`,
		Example: "  pointsman pause key:order-1001\n  pointsman pause --all --machine order --machine-version 3",
	})
}

func resumeCommand(o *options) *cobra.Command {
	return operateCommand(o, engine.JobResume, natsapi.VerbResume, &cobra.Command{
		Use: "resume [REF]", Short: "Let a paused instance run again",
		Long: `resume lets a paused instance run again: what has come meanwhile wakes it, and a deadline that has passed fires at once. One that has ended
is a conflict. REF is its id, or key:<correlation key>.`,
		Example: "  pointsman resume key:order-1001\n  pointsman resume --all --machine order --yes",
	})
}

// operateCommand completes a command whose request is an instance and no more, or all that flags say.
func operateCommand(o *options, kind engine.JobKind, verb string, c *cobra.Command) *cobra.Command {
	n := o.connection()
	b := bulk{kind: kind}
	c.Args, c.ValidArgsFunction = args(cobra.MaximumNArgs(1)), cobra.NoFileCompletions
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := b.args(c, len(args), 0, 0); err != nil {
			return err
		}
		if b.all {
			return b.run(c, n, engine.JobArgs{})
		}
		return n.run(c, func(ctx context.Context, s *session) error { return s.operate(ctx, verb, api.RefRequest{Ref: args[0]}) })
	}
	b.add(c)
	return n.add(c)
}

// operate asks for something to be done to an instance, and shows what it is then.
func (s *session) operate(ctx context.Context, verb string, request any) error {
	var in api.Instance
	if err := s.ask(ctx, verb, request, &in); err != nil {
		return err
	}
	if s.json {
		return s.document(s.out, in)
	}
	_, err := fmt.Fprintf(s.out, "%s is %s\n", in.ID, statusOf(in))
	return err
}

func statusOf(in api.Instance) string {
	if in.Paused {
		return string(in.Status) + ", paused"
	}
	return string(in.Status)
}
