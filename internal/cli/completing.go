package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// completionTimeout is how long a person who has pressed Tab is kept.
const completionTimeout = 2 * time.Second

// names asks a bridge for names that a shell completes.
type names func(ctx context.Context, s *session) ([]string, error)

// first completes the first argument of a command, and flag the value of a flag. Where no bridge answers there is nothing to complete.
func (n *connection) first(list names) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return n.complete(c, begin, list)
	}
}

func (n *connection) flag(c *cobra.Command, name string, list names) {
	// fails for an unknown flag only
	_ = c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return n.complete(c, begin, list)
	})
}

func (n *connection) complete(c *cobra.Command, begin string, list names) (found []string, _ cobra.ShellCompDirective) {
	err := n.run(c, func(ctx context.Context, s *session) error {
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		all, err := list(ctx, s)
		for _, name := range all {
			if strings.HasPrefix(name, begin) {
				found = append(found, name)
			}
		}
		return err
	})
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

func routeNames(ctx context.Context, s *session) (found []string, err error) {
	routes, err := s.routes(ctx)
	for _, r := range routes.Items {
		found = append(found, r.Name)
	}
	return found, err
}

func queueNames(ctx context.Context, s *session) (found []string, err error) {
	page, err := named[api.Queue](ctx, s, natsapi.VerbQueues, paging{limit: api.MaxLimit})
	for _, q := range page.Items {
		found = append(found, q.Name)
	}
	return found, err
}

// machineNames are those that workers know.
func machineNames(ctx context.Context, s *session) (found []string, err error) {
	page, err := named[api.Worker](ctx, s, natsapi.VerbWorkers, paging{limit: api.MaxLimit})
	for _, w := range page.Items {
		for _, machine := range w.Machines {
			name, _, _ := strings.Cut(machine, "@")
			found = append(found, name)
		}
	}
	return found, err
}
