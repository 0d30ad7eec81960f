package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// Operator looks at routes, pauses them and sets them back, whichever bridges run them, or none. Make it with [NewOperator].
type Operator struct {
	js      jetstream.JetStream
	mapper  *Mapper
	journal OperatorJournal
	records Records
	origins *origins
	here    Here
	log     *slog.Logger
}

// OperatorJournal is the [Journal] of the bridges; an [engine.Client] is one.
type OperatorJournal interface {
	Journal
	PauseRoute(ctx context.Context, route string) error
	ResumeRoute(ctx context.Context, route string) error
}

// Here is a bridge of this process; a [Bridge] is one.
type Here interface {
	// Trouble is what keeps a route from its work; nil: nothing does.
	Trouble(route string) error
	// Throttle is why this bridge reads nothing of a route at the moment, or more slowly than it could; "": nothing holds it back.
	Throttle(route string) string
	// PausedByOperator is what the bridge has last heard of a route.
	PausedByOperator(route string) bool
}

// NewOperator operates these routes. here is the bridge that runs them in this process, nil where none does.
func NewOperator(js jetstream.JetStream, mapper *Mapper, journal OperatorJournal, records Records, here Here, log *slog.Logger) *Operator {
	return &Operator{js: js, mapper: mapper, journal: journal, records: records, origins: newOrigins(js), here: here, log: log}
}

// ErrNoRoute: the configuration has no route of this name.
var ErrNoRoute = errors.New("there is no such route")

func (o *Operator) route(name string) (*route, error) {
	for _, rt := range o.mapper.routes() {
		if rt.Name == name {
			return rt, nil
		}
	}
	return nil, fmt.Errorf("%w: %.60q is not in the configuration of the bridge", ErrNoRoute, name)
}

// consumer is what a bridge has of a route, as far as its consumer and its journal go.
func (o *Operator) consumer(rt *route) *consumer {
	return &consumer{route: rt, js: o.js, journal: o.journal, log: o.log.With("route", rt.Name)}
}

// Pauses of a route: it is paused while there is one.
type Pauses struct {
	Config   bool // by the configuration of this bridge
	Operator bool
}

// Pause a route: all bridges stop reading it within seconds, and finish what they have in hand. It stays paused until it is resumed.
func (o *Operator) Pause(ctx context.Context, name string) (Pauses, error) {
	rt, err := o.route(name)
	if err == nil {
		err = o.journal.PauseRoute(ctx, name)
	}
	if err != nil {
		return Pauses{}, err
	}
	o.untilIdle(ctx, rt)
	return Pauses{Config: rt.Paused, Operator: true}, nil
}

const (
	idleTimeout = 2*pausePoll + time.Second
	idleEvery   = 50 * time.Millisecond
)

// untilIdle waits until nobody asks the consumer of a route for messages. It gives up where the consumer cannot be asked, and where others
// pull from it too: the pause itself is written down.
func (o *Operator) untilIdle(ctx context.Context, rt *route) {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	for {
		c, err := o.js.Consumer(ctx, rt.Stream, rt.consumerName())
		if err != nil || c.CachedInfo().NumWaiting == 0 {
			return
		}
		select {
		case <-time.After(idleEvery):
		case <-ctx.Done():
			return
		}
	}
}

// Resume a route that was paused by Pause. One that the configuration pauses stays so.
func (o *Operator) Resume(ctx context.Context, name string) (Pauses, error) {
	rt, err := o.route(name)
	if err == nil {
		err = o.journal.ResumeRoute(ctx, name)
	}
	if err != nil {
		return Pauses{}, err
	}
	return Pauses{Config: rt.Paused}, nil
}

// RouteStatus is where a route stands.
type RouteStatus struct {
	Route      Route // with its defaults filled in
	Consumer   string
	Pauses     Pauses
	Owner      string         // the bridge that reads an ordered route now; "": none
	Progress   *RouteProgress // nil: there is no consumer, or it cannot be asked
	Checkpoint *uint64        // nil: there is none in this incarnation of the stream
	Trouble    error          // of the stream, the consumer, or the bridge that is asked
	Throttle   string         // why that bridge reads nothing now, or slowly; "": nothing holds it back, or there is none here
}

// RouteProgress is what the consumer of a route says.
type RouteProgress struct {
	Pending     uint64 // not delivered yet
	AckPending  int    // delivered and not acked
	Redelivered int    // of these
	Delivered   uint64 // sequence
	AckFloor    uint64 // sequence
}

// journalPatience is for a journal that may be away: what else is known of the routes is worth most then.
const journalPatience = 5 * time.Second

// existingTimeout is how long a consumer made by others is waited for, which the bridge may have no right to ask.
const existingTimeout = time.Second

// Status of all routes, in the order of the configuration. While the journal is away it has what the bridge of this process knows; without
// one that is the error.
func (o *Operator) Status(ctx context.Context) ([]RouteStatus, error) {
	asking, cancel := context.WithTimeout(ctx, journalPatience)
	defer cancel()
	states, away := o.journal.RouteStates(asking)
	if away != nil && (o.here == nil || ctx.Err() != nil) {
		return nil, away
	}
	known := map[string]engine.RouteState{}
	for _, s := range states {
		known[s.Name] = s
	}
	all := make([]RouteStatus, len(o.mapper.routes()))
	for i, rt := range o.mapper.routes() {
		s := RouteStatus{Route: rt.Route, Consumer: rt.consumerName(), Pauses: Pauses{Config: rt.Paused, Operator: known[rt.Name].Paused}}
		if rt.Ordered {
			s.Owner = known[rt.Name].Owner
		}
		if away != nil {
			s.Pauses.Operator = o.here.PausedByOperator(rt.Name)
			s.Trouble = fmt.Errorf("database: %w", away)
		}
		s.Trouble = errors.Join(s.Trouble, o.progress(ctx, rt, &s, away == nil))
		if o.here != nil {
			s.Trouble, s.Throttle = errors.Join(s.Trouble, o.here.Trouble(rt.Name)), o.here.Throttle(rt.Name)
		}
		all[i] = s
	}
	return all, nil
}

func (o *Operator) progress(ctx context.Context, rt *route, s *RouteStatus, journal bool) error {
	if rt.Existing != "" {
		ctx, cancel := context.WithTimeout(ctx, existingTimeout)
		defer cancel()
		if c, err := o.js.Consumer(ctx, rt.Stream, rt.Existing); err == nil {
			s.Progress = progressOf(c.CachedInfo())
		}
		return nil
	}
	stream, err := o.js.Stream(ctx, rt.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", rt.Stream, err)
	}
	if journal {
		cp, known, err := o.journal.Checkpoint(ctx, engine.Incarnation{Route: rt.Name, Stream: rt.Stream, Created: stream.CachedInfo().Created})
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if known {
			s.Checkpoint = &cp.Seq
		}
	}
	c, err := stream.Consumer(ctx, rt.durable)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", rt.durable, err)
	}
	s.Progress = progressOf(c.CachedInfo())
	if c.CachedInfo().Paused {
		return fmt.Errorf("consumer %s is paused on the server", rt.durable)
	}
	return checkConsumer(c.CachedInfo().Config)
}

func progressOf(info *jetstream.ConsumerInfo) *RouteProgress {
	return &RouteProgress{
		Pending: info.NumPending, AckPending: info.NumAckPending, Redelivered: info.NumRedelivered, Delivered: info.Delivered.Stream, AckFloor: info.AckFloor.Stream,
	}
}

// consumerName is that of the consumer that a route reads, whoever made it.
func (rt *route) consumerName() string {
	if rt.Existing != "" {
		return rt.Existing
	}
	return rt.durable
}
