package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/flow"
	"github.com/pointsman/pointsman/internal/config"
)

// flowMachines makes the machines of the flows of the configuration, and refuses a flow that is known with another text.
func flowMachines(ctx context.Context, p *parts, cfg *config.Config, log *slog.Logger) (all []*engine.Machine, err error) {
	for i, f := range cfg.Flows {
		if cfg.Worker.Queues[f.Queue] == 0 {
			log.Warn("instances of a flow wait for another worker: this one does not work on their queue", "flow", f.Name, "queue", f.Queue)
		}
		machines, err := flow.Machines(flow.Config{Flow: f.Flow, Conn: p.nc, Logger: log})
		if err != nil {
			return nil, cfg.Errorf(fmt.Sprintf("flows[%d]", i), "%v", err)
		}
		var other *engine.ContentError
		err = p.client.CheckContent(ctx, machines...)
		if errors.As(err, &other) {
			return nil, cfg.Errorf(fmt.Sprintf("flows[%d].version", i), "flow %s version %d was registered with another text, and instances of it may be live: give what has changed another version", f.Name, f.Version)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, machines...)
	}
	return all, nil
}
