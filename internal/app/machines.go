package app

import (
	"fmt"
	"log/slog"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/remote"
)

// remoteMachines makes the machines of the configuration, whose steps are answered over NATS.
func remoteMachines(p *parts, cfg *config.Config, log *slog.Logger) ([]*engine.Machine, error) {
	machines := make([]*engine.Machine, len(cfg.Machines))
	for i, m := range cfg.Machines {
		if cfg.Worker.Queues[m.Queue] == 0 {
			log.Warn("instances of a machine wait for another worker: this one does not work on their queue", "machine", m.Name, "queue", m.Queue)
		}
		var err error
		machines[i], err = remote.Machine(remote.Config{
			Conn: p.nc, Subjects: p.space, Name: m.Name, Version: m.Version, Start: m.Start, Queue: m.Queue, Timeout: m.Remote.Timeout,
			Retry:  engine.RetryPolicy{MaxAttempts: m.Retry.MaxAttempts, Initial: m.Retry.Initial, Max: m.Retry.Max, Factor: m.Retry.Factor},
			Logger: log,
		})
		if err != nil {
			return nil, cfg.Errorf(fmt.Sprintf("machines[%d]", i), "%v", err)
		}
	}
	return machines, nil
}
