package app

import (
	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/expr"
)

// bridgeRoutes gives the bridge the routes of the configuration. What the bridge does not do yet is refused, not ignored.
func bridgeRoutes(cfg *config.Config) ([]bridge.Route, error) {
	routes := make([]bridge.Route, len(cfg.Routes))
	for i, r := range cfg.Routes {
		routes[i] = bridge.Route{
			Name: r.Name, Project: r.Project, Stream: r.Stream, Subjects: r.Subjects,
			Event: source(r.Event), Signal: source(r.Signal), DedupKey: source(r.DedupKey), Payload: source(r.Payload), Format: bridge.Format(r.Format),
			OnMissing: engine.OnMissing(r.OnMissing), HoldFor: r.HoldFor, OnTerminal: engine.OnTerminal(r.OnTerminal),
			MaxDeliver: r.MaxDeliver, MaxBody: r.MaxBody, Batch: bridge.Batch{Size: r.Batch.Size, Wait: r.Batch.Wait}, Existing: r.Consumer, Ordered: r.Ordered, Paused: r.Paused,
		}
		for _, key := range r.CorrelationKeys {
			routes[i].CorrelationKeys = append(routes[i].CorrelationKeys, key.Source())
		}
		if r.When != nil {
			routes[i].When = r.When.Source()
		}
		if s := r.Start; s != nil {
			routes[i].Start = &bridge.Start{
				Machine: s.Machine, Version: s.Version, State: source(s.State), Queue: s.Queue, ReplyTo: source(s.ReplyTo), NotifyURL: source(s.NotifyURL),
				PartitionKey: source(s.PartitionKey), UniqueKey: source(s.UniqueKey), UniqueScope: statuses(s.UniqueScope),
			}
		}
	}
	return routes, nil
}

func statuses(names []string) []engine.Status {
	all := make([]engine.Status, len(names))
	for i, name := range names {
		all[i] = engine.Status(name)
	}
	return all
}

func source(t *expr.Template) string {
	if t == nil {
		return ""
	}
	return t.Source()
}
