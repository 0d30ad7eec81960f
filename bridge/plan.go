package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Action is what [Operator.Apply] does about a [Change].
type Action string

const (
	ActionCreate Action = "create" // make the consumer
	ActionUpdate Action = "update" // change it in place
	ActionRemake Action = "remake" // make it again from the checkpoint
	ActionDelete Action = "delete" // of a route that is gone
	ActionNone   Action = "none"   // it is an operator's: Steps say what to do
)

// Change is what the server has otherwise than the routes want it.
type Change struct {
	Route    string // "": gone
	Stream   string
	Consumer string
	Action   Action
	Differs  []Difference // of a consumer that is there
	Meaning  string       // one sentence
	Steps    string       // of ActionNone
}

// Difference of one field of a consumer.
type Difference struct{ Field, Have, Want string }

// Plan compares the routes with the server, and changes nothing. Consumers made by others are theirs. Consumers of routes that are gone
// are looked for by their name, in all streams: another configuration under the same subject prefix has such too.
func (o *Operator) Plan(ctx context.Context, space subjects.Space) ([]Change, error) {
	var changes []Change
	wanted := map[string]bool{}
	for _, rt := range o.mapper.routes() {
		if rt.Existing != "" {
			continue
		}
		wanted[rt.Stream+" "+rt.durable] = true
		change, err := o.planRoute(ctx, rt)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", rt.Name, err)
		}
		if change.Action != "" {
			change.Route, change.Stream, change.Consumer = rt.Name, rt.Stream, rt.durable
			changes = append(changes, change)
		}
	}
	orphans, err := o.orphans(ctx, space, wanted)
	return append(changes, orphans...), err
}

func (o *Operator) planRoute(ctx context.Context, rt *route) (Change, error) {
	stream, err := o.js.Stream(ctx, rt.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && rt.builtin {
		return Change{Action: ActionNone, Meaning: "the stream is absent, so the route reads nothing", Steps: "start a bridge with manage_streams, which makes it"}, nil
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Change{Action: ActionNone, Meaning: "the stream is absent, so the route reads nothing", Steps: fmt.Sprintf("nats stream add %s --subjects '%s'", rt.Stream, strings.Join(rt.Subjects, ","))}, nil
	}
	if err != nil {
		return Change{}, fmt.Errorf("stream %s: %w", rt.Stream, err)
	}
	cp, known, err := o.journal.Checkpoint(ctx, engine.Incarnation{Route: rt.Name, Stream: rt.Stream, Created: stream.CachedInfo().Created})
	if err != nil {
		return Change{}, fmt.Errorf("checkpoint: %w", err)
	}
	c, err := stream.Consumer(ctx, rt.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		from := "at the first message of the stream"
		if known && cp.Seq > 0 && stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy {
			from = fmt.Sprintf("after sequence %d, where the route had come to", cp.Seq)
		}
		return Change{Action: ActionCreate, Meaning: "the consumer is absent; it will begin " + from}, nil
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return remakeChange(rt, stream, []Difference{{"deliver_subject", "set: it is pushed", "none"}}, cp.Seq), nil
	}
	if err != nil {
		return Change{}, fmt.Errorf("consumer %s: %w", rt.durable, err)
	}
	if cp.Rewound {
		return Change{Action: ActionRemake, Meaning: fmt.Sprintf("the route was rewound to after %d, and its consumer is not made again yet", cp.Seq)}, nil
	}
	have := c.CachedInfo().Config
	if fixed := differences(fixedFields(), have); len(fixed) > 0 {
		return remakeChange(rt, stream, fixed, cp.Seq), nil
	}
	if open := differences(openFields(rt), have); len(open) > 0 {
		return Change{Action: ActionUpdate, Differs: open, Meaning: "the consumer is not as the route wants it, and can be changed where it is"}, nil
	}
	return Change{}, nil
}

func remakeChange(rt *route, stream jetstream.Stream, fixed []Difference, after uint64) Change {
	kept := stream.CachedInfo().Config.Retention
	if kept == jetstream.LimitsPolicy {
		return Change{Action: ActionRemake, Differs: fixed, Meaning: fmt.Sprintf("the consumer has what no consumer can change; it has to be made again, from after sequence %d: what was taken in since is a duplicate", after)}
	}
	return Change{
		Action: ActionNone, Differs: fixed,
		Meaning: fmt.Sprintf("the consumer has what no consumer can change, and without it the stream, whose retention is %s, drops messages", kept),
		Steps:   fmt.Sprintf("stop what publishes; wait until the consumer has nothing left; nats consumer rm %s %s; pointsman routes apply; publish again", rt.Stream, rt.durable),
	}
}

// field of a consumer: what it wants, and what a consumer has; ok says that this will do.
type field struct {
	name, want string
	have       func(cfg jetstream.ConsumerConfig) (have string, ok bool)
	set        func(cfg *jetstream.ConsumerConfig) // of those that can be changed
}

func differences(fields []field, cfg jetstream.ConsumerConfig) (all []Difference) {
	for _, f := range fields {
		if have, ok := f.have(cfg); !ok {
			all = append(all, Difference{f.name, have, f.want})
		}
	}
	return all
}

// fixedFields are those that the server changes in no consumer.
func fixedFields() []field {
	return []field{
		{"ack_policy", "explicit", func(c jetstream.ConsumerConfig) (string, bool) {
			return c.AckPolicy.String(), c.AckPolicy == jetstream.AckExplicitPolicy
		}, nil},
		{"deliver_policy", "all, or from a sequence on", func(c jetstream.ConsumerConfig) (string, bool) {
			return c.DeliverPolicy.String(), c.DeliverPolicy == jetstream.DeliverAllPolicy || c.DeliverPolicy == jetstream.DeliverByStartSequencePolicy
		}, nil},
		{"replay_policy", "instant", func(c jetstream.ConsumerConfig) (string, bool) {
			return c.ReplayPolicy.String(), c.ReplayPolicy == jetstream.ReplayInstantPolicy
		}, nil},
	}
}

// openFields are those that can be changed in place: what the route sets, and limits that others set and that stop it.
func openFields(rt *route) []field {
	want := rt.consumerConfig()
	limit := func(name string, least int64, get func(c *jetstream.ConsumerConfig) *int) field {
		return field{name, "none", func(c jetstream.ConsumerConfig) (string, bool) {
			n := *get(&c)
			return fmt.Sprint(n), n == 0 || int64(n) >= least
		}, func(c *jetstream.ConsumerConfig) { *get(c) = 0 }}
	}
	return []field{
		{"description", want.Description, func(c jetstream.ConsumerConfig) (string, bool) {
			return c.Description, c.Description == want.Description
		}, func(c *jetstream.ConsumerConfig) { c.Description = want.Description }},
		{"filter_subjects", strings.Join(filters(want), " "), func(c jetstream.ConsumerConfig) (string, bool) {
			return strings.Join(filters(c), " "), slices.Equal(filters(c), filters(want))
		}, func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.FilterSubjects = want.FilterSubject, want.FilterSubjects
		}},
		{"ack_wait", want.AckWait.String(), func(c jetstream.ConsumerConfig) (string, bool) { return c.AckWait.String(), c.AckWait == want.AckWait }, func(c *jetstream.ConsumerConfig) { c.AckWait = want.AckWait }},
		{"backoff", "none", func(c jetstream.ConsumerConfig) (string, bool) { return fmt.Sprint(c.BackOff), len(c.BackOff) == 0 }, func(c *jetstream.ConsumerConfig) { c.BackOff = nil }},
		{"max_deliver", fmt.Sprint(want.MaxDeliver), func(c jetstream.ConsumerConfig) (string, bool) {
			return fmt.Sprint(c.MaxDeliver), c.MaxDeliver == want.MaxDeliver
		}, func(c *jetstream.ConsumerConfig) { c.MaxDeliver = want.MaxDeliver }},
		{"max_ack_pending", fmt.Sprint(want.MaxAckPending), func(c jetstream.ConsumerConfig) (string, bool) {
			return fmt.Sprint(c.MaxAckPending), c.MaxAckPending == want.MaxAckPending
		}, func(c *jetstream.ConsumerConfig) { c.MaxAckPending = want.MaxAckPending }},
		{"headers_only", "false", func(c jetstream.ConsumerConfig) (string, bool) { return fmt.Sprint(c.HeadersOnly), !c.HeadersOnly }, func(c *jetstream.ConsumerConfig) { c.HeadersOnly = false }},
		{"inactive_threshold", "none", func(c jetstream.ConsumerConfig) (string, bool) {
			return c.InactiveThreshold.String(), c.InactiveThreshold == 0
		}, func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = 0 }},
		limit("max_batch", int64(rt.Batch.Size), func(c *jetstream.ConsumerConfig) *int { return &c.MaxRequestBatch }),
		limit("max_bytes", minPullBytes, func(c *jetstream.ConsumerConfig) *int { return &c.MaxRequestMaxBytes }),
		{"max_expires", "none", func(c jetstream.ConsumerConfig) (string, bool) {
			return c.MaxRequestExpires.String(), c.MaxRequestExpires == 0 || c.MaxRequestExpires >= pullExpiry
		}, func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = 0 }},
	}
}

// orphans are durables that have the name of a route's and are no route's.
func (o *Operator) orphans(ctx context.Context, space subjects.Space, wanted map[string]bool) (changes []Change, err error) {
	streams := o.js.ListStreams(ctx)
	for info := range streams.Info() {
		stream, err := o.js.Stream(ctx, info.Config.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", info.Config.Name, err)
		}
		names := stream.ConsumerNames(ctx)
		for name := range names.Name() {
			if strings.HasPrefix(name, space.Durable("")) && !wanted[info.Config.Name+" "+name] {
				changes = append(changes, orphan(info, name))
			}
		}
		if err := names.Err(); err != nil {
			return nil, fmt.Errorf("consumers of stream %s: %w", info.Config.Name, err)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	return changes, nil
}

func orphan(info *jetstream.StreamInfo, name string) Change {
	meaning := "the consumer is of no route of this configuration, and nothing reads it unless another configuration has it"
	if info.Config.Retention != jetstream.LimitsPolicy {
		meaning += "; the stream keeps all that it has not acked"
	}
	return Change{Stream: info.Config.Name, Consumer: name, Action: ActionDelete, Meaning: meaning}
}

// Apply does what a change of a plan says. It may be done again, by several at once, and while bridges run.
func (o *Operator) Apply(ctx context.Context, change Change) error {
	switch change.Action {
	case ActionDelete:
		err := o.js.DeleteConsumer(ctx, change.Stream, change.Consumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	case ActionNone:
		return nil
	}
	rt, err := o.route(change.Route)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	c := o.consumer(rt)
	switch change.Action {
	case ActionUpdate:
		return o.update(ctx, rt)
	case ActionRemake:
		if err := o.remakeFromCheckpoint(ctx, c); err != nil {
			return err
		}
	}
	_, err = c.remake(ctx)
	return err
}

const applyTimeout = 20 * time.Second

func (o *Operator) update(ctx context.Context, rt *route) error {
	stream, err := o.js.Stream(ctx, rt.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", rt.Stream, err)
	}
	c, err := stream.Consumer(ctx, rt.durable)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", rt.durable, err)
	}
	next := c.CachedInfo().Config
	for _, f := range openFields(rt) {
		if _, ok := f.have(next); !ok {
			f.set(&next)
		}
	}
	if _, err := stream.UpdateConsumer(ctx, next); err != nil {
		return fmt.Errorf("consumer %s: %w", rt.durable, err)
	}
	return nil
}

// remakeFromCheckpoint marks the consumer to be made again from where the route has come to. What the consumer says of that is not believed:
// it may ack by itself, or have begun too late.
func (o *Operator) remakeFromCheckpoint(ctx context.Context, c *consumer) error {
	stream, err := o.js.Stream(ctx, c.route.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", c.route.Stream, err)
	}
	if kept := stream.CachedInfo().Config.Retention; kept != jetstream.LimitsPolicy {
		return fmt.Errorf("stream %s has the retention %s: without its consumer it drops messages", c.route.Stream, kept)
	}
	cp, _, err := c.journal.Checkpoint(ctx, c.incarnation(binding{created: stream.CachedInfo().Created}))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return c.setBack(ctx, stream, cp.Seq)
}
