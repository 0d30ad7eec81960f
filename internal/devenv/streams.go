package devenv

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/subjects"
)

// dedupWindow of the streams that are made here is short, to show that duplicates do not depend on it.
const dedupWindow = 2 * time.Second

// makeStreams creates pointsman's own streams, those that the routes read, and one for what flows publish, where they are absent. Elsewhere the latter belong to
// whoever publishes; here there is nobody else.
func (e *environment) makeStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	if err := natsio.EnsureStreams(ctx, e.js, e.space, e.cfg.NATS.Replicas); err != nil {
		return err
	}
	wanted := map[string][]string{}
	for _, r := range e.cfg.Routes {
		wanted[r.Stream] = append(wanted[r.Stream], r.Subjects...)
	}
	if own := e.published(wanted); len(own) > 0 {
		wanted[flowsStream] = append(wanted[flowsStream], own...)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, err := e.js.Stream(ctx, name); err == nil {
			continue
		}
		filters := widest(wanted[name])
		if _, err := e.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: filters, Duplicates: dedupWindow}); err != nil {
			return fmt.Errorf("create stream %s for %v: %w", name, filters, err)
		}
	}
	return nil
}

// flowsStream holds what flows publish and no route reads.
const flowsStream = "FLOWS"

// published are the subjects of flows that none of these streams takes.
func (e *environment) published(wanted map[string][]string) (own []string) {
	for _, f := range e.cfg.Flows {
		for _, subject := range f.Subjects(dag.Publish) {
			taken := slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(wanted))...), func(filter string) bool { return subjects.Overlap(filter, subject) })
			if !taken {
				own = append(own, subject)
			}
		}
	}
	return own
}

// widest drops filters that another one covers: the subjects of a stream must not overlap.
func widest(filters []string) (kept []string) {
	slices.Sort(filters)
	for _, f := range slices.Compact(filters) {
		covered := slices.ContainsFunc(filters, func(other string) bool { return other != f && subjects.Match(other, f) })
		if !covered {
			kept = append(kept, f)
		}
	}
	return kept
}

// printOutcomes shows each end as it is published.
func (e *environment) printOutcomes(ctx context.Context) error {
	sub, err := e.nc.SubscribeSync(e.space.OutcomeFilter())
	if err != nil {
		return err
	}
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil // the end of ctx
		}
		e.say("%s %s", msg.Subject, msg.Data)
	}
}
