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
	trouble func(route string) error
	log     *slog.Logger
}

// OperatorJournal is the [Journal] of the bridges; an [engine.Client] is one.
type OperatorJournal interface {
	Journal
	PauseRoute(ctx context.Context, route string) error
	ResumeRoute(ctx context.Context, route string) error
}

// NewOperator operates these routes. trouble says what is wrong with a route where it runs here; nil: it does not.
func NewOperator(js jetstream.JetStream, mapper *Mapper, journal OperatorJournal, records Records, trouble func(route string) error, log *slog.Logger) *Operator {
	if trouble == nil {
		trouble = func(string) error { return nil }
	}
	return &Operator{js: js, mapper: mapper, journal: journal, records: records, origins: newOrigins(js), trouble: trouble, log: log}
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
	return Pauses{Config: rt.Paused, Operator: true}, nil
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
}

// RouteProgress is what the consumer of a route says.
type RouteProgress struct {
	Pending     uint64 // not delivered yet
	AckPending  int    // delivered and not acked
	Redelivered int    // of these
	Delivered   uint64 // sequence
	AckFloor    uint64 // sequence
}

// existingTimeout is how long a consumer made by others is waited for, which the bridge may have no right to ask.
const existingTimeout = time.Second

// Status of all routes, in the order of the configuration.
func (o *Operator) Status(ctx context.Context) ([]RouteStatus, error) {
	states, err := o.journal.RouteStates(ctx)
	if err != nil {
		return nil, err
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
		s.Trouble = errors.Join(o.progress(ctx, rt, &s), o.trouble(rt.Name))
		all[i] = s
	}
	return all, nil
}

func (o *Operator) progress(ctx context.Context, rt *route, s *RouteStatus) error {
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
	cp, known, err := o.journal.Checkpoint(ctx, engine.Incarnation{Route: rt.Name, Stream: rt.Stream, Created: stream.CachedInfo().Created})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if known {
		s.Checkpoint = &cp.Seq
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

// Trouble is what keeps a route of this bridge from its work; nil: nothing does.
func (b *Bridge) Trouble(route string) error {
	return b.health.of(partRoute(route), partInbox(route), partDeadLetters(route))
}
