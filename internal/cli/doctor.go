package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
)

// doctorTimeout is for all that doctor asks.
const doctorTimeout = time.Minute

func doctorCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with an installation, and say what to change",
		Long: `doctor needs the configuration of a bridge, and looks at its files, NATS, the database, and what runs: versions, the rights of the user on NATS,
streams, the schema, clocks, settings under which data is lost or tables only grow, old snapshots, routes with trouble, queues that nobody
serves. It changes nothing. What is wrong makes the exit status 1; a warning does not, nor what could not be asked.`,
		Example: "  pointsman doctor --config pointsman.yaml\n  pointsman doctor -o 'jsonpath=$.checks[?(@.result == \"wrong\")].do'",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := n.configured(c)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), doctorTimeout)
			defer cancel()
			return n.diagnose(c, n.examine(ctx, c, cfg))
		},
	}
	return n.addNATS(c)
}

// examine looks at everything, also where one part is away.
func (n *connection) examine(ctx context.Context, c *cobra.Command, cfg *config.Config) (checks []app.Check) {
	warnings := cfg.Warnings()
	for _, w := range warnings {
		checks = append(checks, app.Check{Name: "configuration", Result: app.CheckWarning, Found: w.Error(), Do: "see that it is meant so"})
	}
	if _, err := app.Mapper(cfg); err != nil {
		checks = append(checks, app.Check{Name: "configuration", Result: app.CheckWrong, Found: err.Error(), Do: "mend the file"})
	} else if len(warnings) == 0 {
		checks = append(checks, app.Check{Name: "configuration", Result: app.CheckOK, Found: fmt.Sprintf("%d routes", len(cfg.Routes))})
	}
	checks = append(checks, app.ExamineDatabase(ctx, cfg)...)
	nc, err := dial(cfg)
	if err != nil {
		return append(checks, app.Check{Name: "nats", Result: app.CheckWrong, Found: fmt.Sprintf("%s: %v", cfg.NATS.URL, errors.Unwrap(err)), Do: "see that nats-server runs there, and that nats has what it asks for"})
	}
	defer nc.Close()
	return append(append(checks, app.ExamineNATS(ctx, cfg, nc)...), n.examineRunning(c)...)
}

// examineRunning asks a bridge what goes on.
func (n *connection) examineRunning(c *cobra.Command) (checks []app.Check) {
	add := func(name, result, found, do string) {
		checks = append(checks, app.Check{Name: name, Result: result, Found: found, Do: do})
	}
	err := n.runNATS(c, func(ctx context.Context, s *session) error {
		v, err := s.overview(ctx)
		if err != nil {
			return err
		}
		add("bridge", app.CheckOK, "one answers", "")
		trouble := false
		for _, r := range v.Routes {
			if r.Trouble != nil {
				trouble = true
				add("route "+r.Name, app.CheckWrong, *r.Trouble, "pointsman routes plan says how the server differs from the configuration")
			}
		}
		if !trouble {
			add("routes", app.CheckOK, fmt.Sprintf("%d without trouble", len(v.Routes)), "")
		}
		checks = append(checks, examineWork(v.Queues, v.Workers)...)
		return nil
	})
	if err != nil {
		add("bridge", app.CheckWrong, err.Error(), "start one: pointsman bridge --config FILE")
	}
	return checks
}

// examineWork looks for work that nobody does.
func examineWork(queues []api.Queue, workers []api.Worker) (checks []app.Check) {
	alive := 0
	for _, w := range workers {
		if w.Alive {
			alive++
		}
	}
	if alive == 0 {
		checks = append(checks, app.Check{Name: "workers", Result: app.CheckWarning, Found: "none was seen for a minute", Do: "start one: pointsman worker --config FILE, or one of your own"})
	} else {
		checks = append(checks, app.Check{Name: "workers", Result: app.CheckOK, Found: fmt.Sprintf("%d alive", alive)})
	}
	for _, q := range queues {
		if q.Depth > 0 && q.Workers == 0 {
			checks = append(checks, app.Check{
				Name: "queue " + q.Name, Result: app.CheckWrong, Found: fmt.Sprintf("%d instances are ready, and no worker serves it", q.Depth), Do: "start a worker that has it in worker.queues",
			})
		}
	}
	return checks
}

func (n *connection) diagnose(c *cobra.Command, checks []app.Check) error {
	wrong := 0
	t := newTable("CHECK", "RESULT", "FOUND", "DO")
	for _, k := range checks {
		if k.Result == app.CheckWrong {
			wrong++
		}
		t.add(k.Name, k.Result, k.Found, k.Do)
	}
	var err error
	if n.json {
		err = n.document(c.OutOrStdout(), map[string]any{"ok": wrong == 0, "checks": checks})
	} else {
		err = n.print(c.OutOrStdout(), t)
	}
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d of %d checks are wrong", wrong, len(checks))
	}
	return err
}
