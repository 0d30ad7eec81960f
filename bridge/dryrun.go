package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// DryRun counts what would become of messages that a rewind brings again. What on_missing or on_terminal drops is with the filtered, what is
// a conflict with the dead.
type DryRun struct {
	Total     int
	New       int // would be taken in
	Duplicate int // were taken in
	Filtered  int
	Dead      int // would be dead letters, those included that are

	Next uint64 // the sequence to go on with; 0: these were all
	Last uint64 // of the stream
}

const (
	dryRunBatch = 250              // messages that the records are asked for at once
	dryRunTime  = 10 * time.Second // after which what is counted is told
)

// DryRun reads at most so many messages from a place on, and none after the sequence until (0: to the end), maps them as the route is
// configured here, and looks up what is on record of them. It changes nothing. It looks at messages one by one: of two new ones with one
// dedup key in one batch the second is a duplicate, further apart they both count as new.
func (o *Operator) DryRun(ctx context.Context, name string, from Place, until uint64, most int) (DryRun, error) {
	rt, stream, seq, err := o.place(ctx, name, from)
	if err != nil {
		return DryRun{}, err
	}
	d := DryRun{Last: stream.CachedInfo().State.LastSeq}
	if until == 0 {
		until = d.Last
	}
	if seq > until {
		return d, nil
	}
	deadline := time.Now().Add(dryRunTime)
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: rt.Subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq}
	var batch []*message
	var failed error
	flush := func() bool {
		if failed == nil {
			failed = o.count(ctx, rt, stream, batch, &d)
		}
		batch = nil
		return failed == nil
	}
	complete, err := readOn(ctx, o.js, rt.Stream, cfg, most, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		at := meta.Sequence.Stream
		if at > until {
			d.Next = 0
			return true
		}
		batch = append(batch, &message{subject: m.Subject(), headers: m.Headers(), body: m.Data(), stream: rt.Stream, sequence: at, stored: meta.Timestamp})
		d.Next = at + 1
		return len(batch) >= dryRunBatch && !flush() || time.Now().After(deadline)
	})
	if err != nil {
		return DryRun{}, err
	}
	if !flush() {
		return DryRun{}, failed
	}
	if complete || d.Next > until {
		d.Next = 0
	}
	return d, nil
}

// count what becomes of these messages.
func (o *Operator) count(ctx context.Context, rt *route, stream jetstream.Stream, batch []*message, d *DryRun) error {
	mapped := make([]mapping, len(batch))
	var intakes []engine.Intake
	for i, m := range batch {
		m.created = stream.CachedInfo().Created
		if mirror := stream.CachedInfo().Config.Mirror; mirror != nil && mirror.External == nil {
			m.mirrors = mirror.Name
		}
		var err error
		if m.origin, err = o.origins.of(ctx, m); err != nil {
			return err
		}
		mapped[i] = rt.mapMessage(m)
		intakes = append(intakes, mapped[i].intakes...)
	}
	records, err := o.records.LookAll(ctx, intakes)
	if err != nil {
		return fmt.Errorf("route %s: %w", rt.Name, err)
	}
	seen := map[string]bool{}
	for _, m := range mapped {
		d.Total++
		if m.filtered {
			d.Filtered++
			continue
		}
		if m.reason != "" {
			d.Dead++
			continue
		}
		worst := engine.Result("")
		for i, in := range m.intakes {
			would := records[i].Would
			if key := fmt.Sprint(in.To.Project(), in.To.Key(), in.To.ID(), "\n", in.Event, "\n", in.DedupKey); seen[key] && !deadly(would) {
				would = engine.Duplicate
			} else {
				seen[key] = true
			}
			if worst == "" || weight(would) > weight(worst) {
				worst = would
			}
		}
		records = records[len(m.intakes):]
		switch {
		case deadly(worst):
			d.Dead++
		case worst == engine.Duplicate:
			d.Duplicate++
		case worst == engine.Dropped:
			d.Filtered++
		default:
			d.New++
		}
	}
	return nil
}

func deadly(r engine.Result) bool { return r == engine.NoTarget || r == engine.Conflict }

// weight orders what becomes of the parts of a message: what asks for most counts.
func weight(r engine.Result) int {
	switch {
	case deadly(r):
		return 3
	case r == engine.Dropped:
		return 0
	case r == engine.Duplicate:
		return 1
	default:
		return 2
	}
}
