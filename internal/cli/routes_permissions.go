package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/subjects"
)

func routesPermissionsCommand(o *options) *cobra.Command {
	var extra []string
	var nsc bool
	out := &output{}
	c := &cobra.Command{
		Use: "permissions", Short: "Print the NATS rights that a configuration needs",
		Long: `permissions prints what the users of bridge, worker and command line have to be allowed on the NATS server for this configuration, as
nats-server's configuration has it, or as commands of nsc. It asks no server. Two things the configuration does not say: subjects that steps
publish to, or that a start names as reply_to, are for --publish; and a stream that is a mirror or has sources also needs the bridge's right to
publish to $JS.API.STREAM.INFO.<upstream>, where that is in the same account, which --publish adds too. A consumer made by others
(consumer.existing) needs no right of the JetStream API but to pull from it; to say what became of a message of its stream the bridge has to
read that, by $JS.API.STREAM.INFO.<stream>, $JS.API.STREAM.MSG.GET.<stream> and $JS.API.DIRECT.GET.<stream>.`,
		Example: `  pointsman routes permissions --config pointsman.yaml
  pointsman routes permissions --nsc --publish 'mails.>'`,
		Args: args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, subject := range extra {
				if err := subjects.ValidFilter(subject); err != nil {
					return usage(c, fmt.Errorf("--publish: %w", err))
				}
			}
			cfg, err := o.load(c)
			if err != nil {
				return err
			}
			all, err := app.Permissions(cfg, extra)
			if err != nil {
				return err
			}
			if out.json {
				return out.document(c.OutOrStdout(), map[string]any{"users": all})
			}
			var b strings.Builder
			for i, r := range all {
				switch {
				case nsc:
					b.WriteString(r.NSC())
				case i > 0:
					b.WriteString("\n# " + r.Program + "\n" + r.Conf())
				default:
					b.WriteString("# " + r.Program + "\n" + r.Conf())
				}
			}
			_, err = io.WriteString(c.OutOrStdout(), b.String())
			return err
		},
	}
	c.Flags().StringArrayVar(&extra, "publish", nil, "a subject that the bridge publishes to beside; may be repeated")
	c.Flags().BoolVar(&nsc, "nsc", false, "print commands of nsc")
	out.addOutput(c)
	return c
}
