package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func updateCommand(o *options) *cobra.Command {
	n := o.connection()
	var request api.UpdateRequest
	var wait time.Duration
	c := &cobra.Command{
		Use: "update REF NAME [ARG]", Short: "Steer an instance by an update, which may be refused",
		Long: `update asks the validator of an update and, where it accepts, delivers ARG to the instance, which goes on with it or, if it does not await
the update yet, finds it in its inbox. A refusal leaves the instance as it was: its reason is the error, with exit status 1. REF is an
instance id, or key:<correlation key>. ARG is JSON, @FILE, or - for the standard input; without it, it is null. With --idempotency-key a
second request gets the verdict of the first.`,
		Example: `  pointsman update key:expense-7 decision '{"approved": true, "approver": "ann"}'
  pointsman update key:expense-7 decision @decision.json --wait 5s --idempotency-key dec-1
  pointsman update key:expense-7 decision @decision.json --wait 5s --json | jq .run.status`,
		Args: args(cobra.RangeArgs(2, 3)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if wait < 0 || wait > api.MaxWait {
				return usage(c, fmt.Errorf("--wait %s: want at most %s", wait, api.MaxWait))
			}
			request.Ref, request.Name = args[0], args[1]
			if request.Arg, err = documentArg(c, args, 2, "arg"); err != nil {
				return err
			}
			if wait > 0 {
				request.Wait = wait.String()
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				var done api.Updated
				if err := s.askFor(ctx, requestTimeout+wait, natsapi.VerbUpdate, request, &done); err != nil {
					return err
				}
				return s.updated(done)
			})
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait for the step that takes it, at most this long (5m)")
	c.Flags().StringVar(&request.IdempotencyKey, "idempotency-key", "", "a second request with the same one gets the first verdict")
	return n.add(c)
}

// updated shows a verdict. A refusal is an error.
func (s *session) updated(done api.Updated) error {
	if s.json {
		if err := s.document(s.out, done); err != nil {
			return err
		}
	}
	switch {
	case !done.Accepted:
		return errors.New("refused: " + done.Reason)
	case s.json:
		return nil
	case done.Run == nil:
		_, err := fmt.Fprintln(s.out, "accepted; no step has taken it yet")
		return err
	default:
		_, err := fmt.Fprintf(s.out, "accepted; %s is %s in step %s\n", done.Run.ID, statusOf(*done.Run), done.Run.Step)
		return err
	}
}
