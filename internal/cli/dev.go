package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/devenv"
)

func devCommand(o *options) *cobra.Command {
	var d devenv.Options
	c := &cobra.Command{
		Use: "dev", Short: "Run everything here: bridge, worker, NATS and Postgres, with an example",
		Long: `dev starts a NATS server and a private Postgres, a bridge and a worker with the orders example, prints where they are, and stays up.
With --config it runs the routes, remote machines and flows of that file instead of the example's, and makes the streams they read.
What it stores is removed at the end, unless --data-dir says where to keep it. With --env it writes its addresses into a file when all is up,
as lines that a shell of another terminal reads, with ". ./dev.env"; commands and programs there then find it.

--traffic publishes what a shop would: the events of so many orders, and among them duplicates, payments that come before their order or
after its end, orders that nobody pays, messages that nobody can read. When all is settled a table says what became of each message,
from what is stored. With --exit that is the end, with status 0 only if all of it adds up. --chaos kills the bridge, the worker,
Postgres and the NATS server with SIGKILL meanwhile, a dozen times.`,
		Example: `  pointsman dev
  pointsman dev --config parcels.yaml
  pointsman dev --env dev.env
  pointsman dev --data-dir ./data
  pointsman dev --traffic 2000 --exit
  pointsman dev --traffic 2000 --exit --chaos
  pointsman dev --nats-url nats://localhost:4222 --database-url postgres://localhost/shop`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			d.Config = o.config
			if err := d.Check(); err != nil {
				return usage(c, err)
			}
			if !c.Flags().Changed("log-level") {
				o.logLevel = "warn" // what is printed is to be read
				if d.Chaos {
					o.logLevel = "error" // that parts are away is what is wanted
				}
			}
			log, err := o.logger(c)
			if err != nil {
				return err
			}
			d.Out, d.Err, d.Log, d.Env = c.OutOrStdout(), c.ErrOrStderr(), log, os.LookupEnv
			d.Args = []string{"--log-level", o.logLevel, "--log-format", o.logFormat}
			return devenv.Run(c.Context(), d)
		},
	}
	f := c.Flags()
	f.StringVar(&d.DataDir, "data-dir", "", "keep streams and database here")
	f.StringVar(&d.EnvFile, "env", "", "write the addresses into this file when all is up, and remove it at the end")
	f.StringVar(&d.DatabaseURL, "database-url", "", "use this Postgres instead of a private one")
	f.StringVar(&d.NATSURL, "nats-url", "", "use this NATS server instead of an embedded one")
	f.IntVar(&d.Traffic, "traffic", 0, "publish the events of so many orders")
	f.BoolVar(&d.Exit, "exit", false, "end when the traffic is settled")
	f.BoolVar(&d.Chaos, "chaos", false, "kill bridge, worker, Postgres and NATS server during the traffic")
	return c
}

// devPartCommand is what dev --chaos runs its parts with.
func devPartCommand(o *options) *cobra.Command {
	var p devenv.PartOptions
	c := &cobra.Command{
		Use: devenv.PartCommand + " PART", Hidden: true, Short: "Run one part of dev --chaos, until standard input ends", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			log, err := o.logger(c)
			if err != nil {
				return err
			}
			p.Part, p.Log, p.Env, p.In = args[0], log, os.LookupEnv, c.InOrStdin()
			return devenv.RunPart(c.Context(), p)
		},
	}
	c.Flags().StringVar(&p.Dir, "dir", "", "of the streams")
	c.Flags().IntVar(&p.Port, "port", 0, "of the NATS server")
	return c
}
