package api

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/bridge"
)

// RoutesRequest asks for all routes.
type RoutesRequest struct{}

// Routes are where the routes of a bridge stand.
type Routes struct {
	Items []Route `json:"items" nullable:"false"`
}

// Route is where one stands. What is null is not known: no bridge has run it, or its consumer cannot be asked.
type Route struct {
	RoutePause
	Stream      string   `json:"stream"`
	Subjects    []string `json:"subjects" nullable:"false"`
	Consumer    string   `json:"consumer"`
	Ordered     bool     `json:"ordered"`
	Owner       *string  `json:"owner"`       // of an ordered route: the bridge that reads it
	Lag         *uint64  `json:"lag"`         // messages that are not acked
	Pending     *uint64  `json:"pending"`     // of these, not delivered yet
	AckPending  *int     `json:"ack_pending"` // of these, delivered
	Redelivered *int     `json:"redelivered"` // of these, more than once
	Delivered   *uint64  `json:"delivered_seq"`
	AckFloor    *uint64  `json:"ack_floor_seq"`
	Checkpoint  *uint64  `json:"checkpoint_seq"`
	Trouble     *string  `json:"trouble"` // null: none
	// Throttle is why the bridge that answers reads nothing at the moment, or slowly: its first word is paused, standby, starting, inbox,
	// dead letters, stream, routes, slow or full. null: nothing holds it back.
	Throttle *string `json:"throttle_reason"`
}

// RoutePause says whether a route is paused, and by what.
type RoutePause struct {
	Name     string   `json:"name"`
	Paused   bool     `json:"paused"`
	PausedBy []string `json:"paused_by" nullable:"false"` // config, operator
}

func routePauseOf(name string, p bridge.Pauses) RoutePause {
	out := RoutePause{Name: name, Paused: p.Config || p.Operator, PausedBy: []string{}}
	if p.Config {
		out.PausedBy = append(out.PausedBy, "config")
	}
	if p.Operator {
		out.PausedBy = append(out.PausedBy, "operator")
	}
	return out
}

// Routes of this bridge, in the order of its configuration, the built-in one last.
func (a *API) Routes(ctx context.Context, _ RoutesRequest) (Routes, error) {
	all, err := a.Operator.Status(ctx)
	if err != nil {
		return Routes{}, err
	}
	out := Routes{Items: make([]Route, len(all))}
	for i, s := range all {
		out.Items[i] = routeOf(s)
	}
	return out, nil
}

func routeOf(s bridge.RouteStatus) Route {
	r := Route{
		RoutePause: routePauseOf(s.Route.Name, s.Pauses), Stream: s.Route.Stream, Subjects: s.Route.Subjects, Consumer: s.Consumer, Ordered: s.Route.Ordered,
		Owner: optional(s.Owner), Checkpoint: s.Checkpoint, Throttle: optional(s.Throttle),
	}
	if r.Subjects == nil {
		r.Subjects = []string{}
	}
	if p := s.Progress; p != nil {
		lag := p.Pending + uint64(p.AckPending)
		r.Lag, r.Pending, r.AckPending, r.Redelivered, r.Delivered, r.AckFloor = &lag, &p.Pending, &p.AckPending, &p.Redelivered, &p.Delivered, &p.AckFloor
	}
	if s.Trouble != nil {
		r.Trouble = optional(s.Trouble.Error())
	}
	return r
}

// RouteRequest names a route.
type RouteRequest struct {
	Name string `json:"name"`
}

// PauseRoute keeps all bridges from reading a route, until it is resumed.
func (a *API) PauseRoute(ctx context.Context, r RouteRequest) (RoutePause, error) {
	p, err := a.Operator.Pause(ctx, r.Name)
	return routePauseOf(r.Name, p), err
}

// ResumeRoute ends a pause; a route that the configuration pauses stays paused.
func (a *API) ResumeRoute(ctx context.Context, r RouteRequest) (RoutePause, error) {
	p, err := a.Operator.Resume(ctx, r.Name)
	return routePauseOf(r.Name, p), err
}

// RewindRequest asks for a route to be read again from a place on.
type RewindRequest struct {
	Name   string     `json:"name"`
	ToTime *time.Time `json:"to_time,omitempty"`
	ToSeq  uint64     `json:"to_seq,omitempty"`

	DryRun   bool   `json:"dry_run,omitempty"`
	Limit    int    `json:"limit,omitempty"`     // of a dry run: messages that are read
	UntilSeq uint64 `json:"until_seq,omitempty"` // of a dry run: the last one; 0: to the end
}

// MaxDryRun bounds what one dry run reads; NextSeq says where the next one goes on.
const MaxDryRun = 20_000

// Rewound says what comes again.
type Rewound struct {
	Name    string `json:"name"`
	Stream  string `json:"stream"`
	FromSeq uint64 `json:"from_seq"`
	Pending uint64 `json:"pending"` // messages
}

// RewindDryRun counts what would become of the messages that come again.
type RewindDryRun struct {
	Total     int     `json:"total"`
	New       int     `json:"new"`
	Duplicate int     `json:"duplicate"`
	Filtered  int     `json:"filtered"`
	Dead      int     `json:"dead"`
	NextSeq   *uint64 `json:"next_seq"` // null: these are all
	LastSeq   uint64  `json:"last_seq"` // of the stream
}

// RewindRoute answers with a [Rewound], or a [RewindDryRun].
func (a *API) RewindRoute(ctx context.Context, r RewindRequest) (any, error) {
	to := bridge.Place{Seq: r.ToSeq}
	if r.ToTime != nil {
		to.Time = *r.ToTime
	}
	if !r.DryRun {
		if r.Limit != 0 || r.UntilSeq != 0 {
			return nil, invalid("limit", "and until_seq are of a dry run: leave them out")
		}
		done, err := a.Operator.Rewind(ctx, r.Name, to)
		return Rewound{Name: r.Name, Stream: done.Stream, FromSeq: done.Seq, Pending: done.Pending}, err
	}
	if r.Limit < 0 || r.Limit > MaxDryRun {
		return nil, invalid("limit", "is %d: want 1 to %d", r.Limit, MaxDryRun)
	}
	if r.Limit == 0 {
		r.Limit = MaxDryRun
	}
	d, err := a.Operator.DryRun(ctx, r.Name, to, r.UntilSeq, r.Limit)
	out := RewindDryRun{Total: d.Total, New: d.New, Duplicate: d.Duplicate, Filtered: d.Filtered, Dead: d.Dead, LastSeq: d.Last}
	if d.Next != 0 {
		out.NextSeq = &d.Next
	}
	return out, err
}
