package cli

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func eventsCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "events REF [KEY]", Short: "Show the values that an instance has published",
		Long:    "events shows the published values of an instance, also after its end; with KEY the bare value. REF is an instance id, or\nkey:<correlation key>.",
		Example: "  pointsman events key:order-1001\n  pointsman events key:order-1001 progress",
		Args:    args(cobra.RangeArgs(1, 2)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			request := api.EventsRequest{Ref: args[0]}
			if len(args) > 1 {
				if args[1] == "" {
					return usage(c, errors.New("KEY is empty: leave it out to see all"))
				}
				request.Key = args[1]
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				if request.Key != "" {
					var value json.RawMessage
					if err := s.ask(ctx, natsapi.VerbEvents, request, &value); err != nil {
						return err
					}
					return s.document(s.out, value)
				}
				var values map[string]json.RawMessage
				if err := s.ask(ctx, natsapi.VerbEvents, request, &values); err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, values)
				}
				t := newTable("KEY", "VALUE")
				for _, key := range slices.Sorted(maps.Keys(values)) {
					t.add(key, string(values[key]))
				}
				return s.print(s.out, t)
			})
		},
	}
	return n.add(c)
}
