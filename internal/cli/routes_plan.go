package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/subjects"
)

// change is a bridge.Change as JSON.
type change struct {
	Route    *string      `json:"route"` // null: gone
	Stream   string       `json:"stream"`
	Consumer string       `json:"consumer"`
	Action   string       `json:"action"`
	Meaning  string       `json:"meaning"`
	Steps    *string      `json:"steps"`
	Differs  []difference `json:"differs"`
}

type difference struct {
	Field string `json:"field"`
	Have  string `json:"have"`
	Want  string `json:"want"`
}

func routesPlanCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "plan", Short: "Compare the routes of a configuration with the server",
		Long: `plan says where streams and consumers are not as the routes of the configuration want them, what that means, and what apply would do. It
changes nothing. The exit status is 0 where nothing differs, and 1 where something does. It asks NATS and the database itself, not a
bridge: the configuration may be one that no bridge runs yet. Consumers made by others (consumer.existing) are not compared.`,
		Example: "  pointsman routes plan --config pointsman.yaml\n  pointsman routes plan --json | jq '.changes[].action'",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return n.operate(c, func(ctx context.Context, o *bridge.Operator, space subjects.Space) error {
				changes, err := o.Plan(ctx, space)
				if err != nil {
					return err
				}
				if err := n.showPlan(c.OutOrStdout(), changes); err != nil || len(changes) == 0 {
					return err
				}
				return fmt.Errorf("%d of the streams and consumers differ: see pointsman routes apply --help", len(changes))
			})
		},
	}
	return n.addNATS(c)
}

func routesApplyCommand(o *options) *cobra.Command {
	n := o.connection()
	yes, prune := false, false
	c := &cobra.Command{
		Use: "apply", Short: "Make the consumers on the server what the routes want",
		Long: `apply does what plan says: it makes consumers that are absent, changes what can be changed, and makes again, from the checkpoint of the
route, what cannot; it asks before that, unless --yes. Bridges may run meanwhile. Streams are not made. Where a stream keeps messages only as
long as a consumer wants them none is made again; the steps are printed instead, and the exit status is 1. Consumers of routes that are gone
stay, unless --prune: another configuration under the same subject prefix may have them.`,
		Example: "  pointsman routes apply --config pointsman.yaml\n  pointsman routes apply --yes --prune",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return n.operate(c, func(ctx context.Context, o *bridge.Operator, space subjects.Space) error {
				changes, err := o.Plan(ctx, space)
				if err != nil {
					return err
				}
				return n.apply(ctx, c, o, changes, yes, prune)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&prune, "prune", false, "delete consumers of routes that are gone")
	return n.addNATS(c)
}

// operate connects to NATS and to the database.
func (n *connection) operate(c *cobra.Command, do func(ctx context.Context, o *bridge.Operator, space subjects.Space) error) error {
	cfg, nc, err := n.dial(c)
	if err != nil {
		return err
	}
	defer nc.Close()
	return app.WithOperator(c.Context(), cfg, nc, func(o *bridge.Operator, space subjects.Space) error { return do(c.Context(), o, space) })
}

func (n *connection) showPlan(w io.Writer, changes []bridge.Change) error {
	if n.json {
		out := make([]change, len(changes))
		for i, c := range changes {
			out[i] = change{Stream: c.Stream, Consumer: c.Consumer, Action: string(c.Action), Meaning: c.Meaning, Differs: []difference{}}
			if c.Route != "" {
				out[i].Route = &c.Route
			}
			if c.Steps != "" {
				out[i].Steps = &c.Steps
			}
			for _, d := range c.Differs {
				out[i].Differs = append(out[i].Differs, difference(d))
			}
		}
		return n.document(w, map[string]any{"changes": out})
	}
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "all is as the routes want it")
		return err
	}
	var b strings.Builder
	for _, c := range changes {
		b.WriteString(describe(c))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func describe(c bridge.Change) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s of %s: %s\n", c.Action, oneLine(c.Consumer), oneLine(c.Stream), oneLine(c.Meaning))
	for _, d := range c.Differs {
		fmt.Fprintf(&b, "  %s is %s, want %s\n", d.Field, oneLine(d.Have), oneLine(d.Want))
	}
	if c.Steps != "" {
		fmt.Fprintf(&b, "  do: %s\n", oneLine(c.Steps))
	}
	return b.String()
}

// applied is what became of a change.
type applied struct {
	Route    string `json:"route"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Action   string `json:"action"`
	Done     bool   `json:"done"`
}

func (n *connection) apply(ctx context.Context, c *cobra.Command, o *bridge.Operator, changes []bridge.Change, yes, prune bool) error {
	answers, w := bufio.NewReader(c.InOrStdin()), c.OutOrStdout()
	results, left := make([]applied, len(changes)), 0
	for i, change := range changes {
		if !n.json {
			if _, err := io.WriteString(w, describe(change)); err != nil {
				return err
			}
		}
		do := change.Action != bridge.ActionNone && (change.Action != bridge.ActionDelete || prune)
		if do && !yes && (change.Action == bridge.ActionRemake || change.Action == bridge.ActionDelete) {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s %s of %s? [y/N] ", change.Action, oneLine(change.Consumer), oneLine(change.Stream))
			line, _ := answers.ReadString('\n') // the end of the input is no
			do = strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes")
		}
		if do {
			if err := o.Apply(ctx, change); err != nil {
				return fmt.Errorf("%s %s of %s: %w", change.Action, change.Consumer, change.Stream, err)
			}
		} else if change.Action != bridge.ActionDelete || prune {
			left++
		}
		results[i] = applied{change.Route, change.Stream, change.Consumer, string(change.Action), do}
		if !n.json {
			state := "  done"
			if !do {
				state = "  left as it is"
			}
			if _, err := fmt.Fprintln(w, state); err != nil {
				return err
			}
		}
	}
	if n.json {
		if err := n.document(w, map[string]any{"changes": results}); err != nil {
			return err
		}
	} else if len(changes) == 0 {
		if _, err := fmt.Fprintln(w, "all is as the routes want it"); err != nil {
			return err
		}
	}
	if left > 0 {
		return errors.New("not all is done: pointsman routes plan shows what is left")
	}
	return nil
}
