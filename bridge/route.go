package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// Format says what the body of a message is.
type Format string

const (
	FormatJSON  Format = "json"
	FormatText  Format = "text"  // the payload is a JSON string
	FormatBytes Format = "bytes" // the payload is a JSON string in base64
)

// Route is a rule that makes signals or starts of messages. Fields marked as templates may hold {{expressions}}.
type Route struct {
	Name    string // a subject token, not "signals"; also names the durable consumer
	Project string // zero: engine.DefaultProject

	Stream   string
	Subjects []string // filters; none: the whole stream
	When     string   // a condition; a message for which it is false is acked and counted as filtered

	Event           string   // template; the key of the trigger that the message is sent to: instead of Signal, CorrelationKeys and Start
	Signal          string   // template; the name of the signal. Required, unless there is a Start
	CorrelationKeys []string // templates; each may give a list, and each key gets a signal. Required with Signal
	DedupKey        string   // template; zero: "<stream>:<Nats-Msg-Id>", else CloudEvents "<source>#<id>", else the place in the stream
	Payload         string   // template; zero: the whole body
	Format          Format   // zero: FormatJSON

	OnMissing  engine.OnMissing  // zero: MissingStart with a Start, else MissingHold
	HoldFor    time.Duration     // zero: an hour
	OnTerminal engine.OnTerminal // zero: TerminalStart with a Start alone, whose key is free again at the end, else TerminalReject
	Start      *Start            // for MissingStart and TerminalStart; alone (no Signal): every message is a start

	MaxDeliver int // failures of one message, outages not counted, before it is a dead letter; zero: 10
	MaxBody    int // bytes; a longer body is a dead letter; zero: 1 MiB
	Batch      Batch
	Ordered    bool   // one bridge at a time reads the route, and takes its messages in in the order of the stream
	Existing   string // a consumer made by others, with explicit acks: the bridge needs the right to pull from it, and no other
	Paused     bool
}

// Batch bounds what goes to the inbox at once.
type Batch struct {
	Size int           // messages; zero: 500, at most 10,000
	Wait time.Duration // how long a batch may wait to grow while messages flow; zero: 5ms
}

// Start is the instance that a route starts.
type Start struct {
	Machine  string
	Version  int    // zero: the engine's choice
	State    string // template; zero: {}
	Queue    string // zero: the machine's
	Priority int16
	ReplyTo  string // template; the outcome is published to this subject too
	// NotifyURL is a template; the end is told to this URL by webhook.
	NotifyURL string

	PartitionKey string          // template; zero: none
	UniqueKey    string          // template; zero: none
	UniqueScope  []engine.Status // of UniqueKey; zero: the live statuses
}

// route is a compiled [Route].
type route struct {
	Route
	space   subjects.Space
	builtin bool // SignalsRoute: target and name come from headers and subject
	durable string

	ackWait       time.Duration
	maxAckPending int

	when                   *expr.Condition
	signal, dedup, payload *expr.Template
	event                  *expr.Template
	keys                   []*expr.Template
	state, replyTo, notify *expr.Template
	partition, unique      *expr.Template
}

const (
	defaultHold       = time.Hour
	defaultMaxDeliver = 10
	defaultBatchSize  = 500
	defaultBatchWait  = 5 * time.Millisecond
	maxBatchSize      = 10_000
	maxBatchWait      = time.Second

	// minAckWait is also how long the messages of a bridge that was killed stay away from the others.
	minAckWait        = 15 * time.Second
	minOrderedAckWait = 5 * time.Second       // nobody else goes on in the meantime
	ackWaitPerSignal  = 10 * time.Millisecond // a hundredth of the speed that is expected
	minMaxAckPending  = 5000
)

// compileRoutes checks and compiles all routes, the built-in one included.
func compileRoutes(cfg Config) ([]*route, error) {
	var routes []*route
	seen := map[string]bool{subjects.SignalsRoute: true}
	for i, r := range cfg.Routes {
		rt, err := compile(cfg.Subjects, r)
		if err != nil {
			return nil, fmt.Errorf("routes[%d] %q: %w", i, r.Name, err)
		}
		if seen[r.Name] {
			return nil, fmt.Errorf("routes[%d]: the name %q is taken", i, r.Name)
		}
		seen[r.Name] = true
		routes = append(routes, rt)
	}
	if !cfg.NoSignalsRoute {
		routes = append(routes, signalsRoute(cfg.Subjects))
	}
	return routes, nil
}

// compile checks a route, fills in its defaults, and compiles its expressions.
func compile(space subjects.Space, r Route) (*route, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	rt := newRoute(space, r)
	if r.When != "" {
		var err error
		if rt.when, err = expr.CompileWhen(r.When); err != nil {
			return nil, fmt.Errorf("when: %w", err)
		}
	}
	templates := []template{
		{"signal", r.Signal, &rt.signal},
		{"event", r.Event, &rt.event},
		{"dedup_key", r.DedupKey, &rt.dedup},
		{"payload", r.Payload, &rt.payload},
	}
	if r.Start != nil {
		templates = append(templates, template{"start.state", r.Start.State, &rt.state}, template{"start.reply_to", r.Start.ReplyTo, &rt.replyTo}, template{"start.notify_url", r.Start.NotifyURL, &rt.notify},
			template{"start.partition_key", r.Start.PartitionKey, &rt.partition}, template{"start.unique_key", r.Start.UniqueKey, &rt.unique})
	}
	rt.keys = make([]*expr.Template, len(r.CorrelationKeys))
	for i, source := range r.CorrelationKeys {
		templates = append(templates, template{"correlation_key", source, &rt.keys[i]})
	}
	for _, t := range templates {
		if t.source == "" {
			continue
		}
		var err error
		if *t.into, err = expr.Compile(t.source); err != nil {
			return nil, fmt.Errorf("%s: %w", t.field, err)
		}
	}
	if name, ok := literal(rt.signal); ok {
		if err := ident.Name("signal", name); err != nil {
			return nil, err
		}
	}
	if key, ok := literal(rt.event); ok {
		if err := ident.EventKey("event", key); err != nil {
			return nil, err
		}
	}
	return rt, nil
}

func literal(t *expr.Template) (string, bool) {
	if t == nil {
		return "", false
	}
	return t.Literal()
}

type template struct {
	field, source string
	into          **expr.Template
}

// newRoute fills in the defaults.
func newRoute(space subjects.Space, r Route) *route {
	setDefault(&r.Project, engine.DefaultProject)
	setDefault(&r.Format, FormatJSON)
	setDefault(&r.HoldFor, defaultHold)
	setDefault(&r.MaxDeliver, defaultMaxDeliver)
	setDefault(&r.MaxBody, ident.MaxJSON)
	setDefault(&r.Batch.Size, defaultBatchSize)
	setDefault(&r.Batch.Wait, defaultBatchWait)
	if r.Start != nil {
		setDefault(&r.OnMissing, engine.MissingStart)
	}
	setDefault(&r.OnMissing, engine.MissingHold)
	least := minAckWait
	if r.Ordered {
		least = minOrderedAckWait
	}
	if r.Signal == "" && r.Start != nil {
		setDefault(&r.OnTerminal, engine.TerminalStart)
	}
	setDefault(&r.OnTerminal, engine.TerminalReject)
	return &route{
		Route: r, space: space, durable: space.Durable(r.Name),
		ackWait:       max(least, time.Duration(r.Batch.Size)*ackWaitPerSignal),
		maxAckPending: maxAckPending(r),
	}
}

// maxAckPending of an ordered route is what a bridge that takes it over may have to keep at first.
func maxAckPending(r Route) int {
	if r.Ordered {
		return 2 * r.Batch.Size
	}
	return max(minMaxAckPending, 10*r.Batch.Size)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check what can be checked without compiling.
func (r Route) check() error {
	if r.Ordered && r.Existing != "" {
		return errors.New("ordered: a route cannot order the messages of a consumer that others made: leave consumer.existing out")
	}
	return errors.Join(r.checkNames(), r.checkTarget(), r.checkChoices(), r.checkBounds())
}

func (r Route) checkNames() error {
	errs := []error{ident.Token("name", r.Name), checkStream("stream", r.Stream)}
	if r.Name == subjects.SignalsRoute {
		errs = append(errs, fmt.Errorf("name: %q is the built-in route's", r.Name))
	}
	if r.Project != "" {
		errs = append(errs, ident.Token("project", r.Project))
	}
	if r.Existing != "" {
		errs = append(errs, checkStream("consumer.existing", r.Existing))
	}
	for i, s := range r.Subjects {
		if err := subjects.ValidFilter(s); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, other := range r.Subjects[:i] {
			if subjects.Overlap(s, other) {
				errs = append(errs, fmt.Errorf("subject %q overlaps with %q: a message would match twice", s, other))
			}
		}
	}
	return errors.Join(errs...)
}

// checkStream checks the name of a stream or consumer.
func checkStream(field, name string) error {
	if name == "" {
		return fmt.Errorf("%s: is empty", field)
	}
	if strings.ContainsAny(name, " .*>/\\\t\r\n\x00") {
		return fmt.Errorf("%s: %q has a space, or one of . * > / \\", field, name)
	}
	return nil
}

func (r Route) checkTarget() error {
	var errs []error
	if r.Event != "" && (r.Signal != "" || r.Start != nil || len(r.CorrelationKeys) > 0) {
		errs = append(errs, errors.New("event: stands beside signal, start or correlation_key: a route with an event has none of them"))
	}
	if r.Signal == "" && r.Start == nil && r.Event == "" {
		errs = append(errs, errors.New("has neither signal, event nor start"))
	}
	if r.Signal != "" && len(r.CorrelationKeys) == 0 {
		errs = append(errs, errors.New("correlation_key: is empty: a signal needs a target"))
	}
	if i := slices.Index(r.CorrelationKeys, ""); i >= 0 {
		errs = append(errs, fmt.Errorf("correlation_key[%d]: is empty", i))
	}
	if s := r.Start; s != nil {
		errs = append(errs, ident.Token("start.machine", s.Machine))
		if s.Queue != "" {
			errs = append(errs, ident.Queue("start.queue", s.Queue))
		}
		if s.Version < 0 {
			errs = append(errs, fmt.Errorf("start.version: %d is negative", s.Version))
		}
		if len(s.UniqueScope) > 0 && s.UniqueKey == "" {
			errs = append(errs, errors.New("start.unique_scope: is of no unique_key"))
		}
		for _, status := range s.UniqueScope {
			errs = append(errs, oneOf("start.unique_scope", status,
				engine.StatusRunnable, engine.StatusExecuting, engine.StatusAwaiting, engine.StatusDone, engine.StatusFailed, engine.StatusCanceled))
		}
	}
	return errors.Join(errs...)
}

func (r Route) checkChoices() error {
	var errs []error
	errs = append(errs,
		oneOf("format", r.Format, FormatJSON, FormatText, FormatBytes),
		oneOf("on_missing", r.OnMissing, engine.MissingHold, engine.MissingStart, engine.MissingReject, engine.MissingDrop),
		oneOf("on_terminal", r.OnTerminal, engine.TerminalReject, engine.TerminalDrop, engine.TerminalStart))
	starts := r.OnMissing == engine.MissingStart || r.OnTerminal == engine.TerminalStart
	switch {
	case starts && r.Start == nil:
		errs = append(errs, errors.New("start: is missing, and on_missing or on_terminal asks for it"))
	case r.Event != "":
	case r.Signal == "" && r.OnMissing != "" && r.OnMissing != engine.MissingStart:
		errs = append(errs, fmt.Errorf("on_missing: %s makes no sense for a start", r.OnMissing))
	case r.Signal == "" && r.OnTerminal != "" && r.OnTerminal != engine.TerminalStart:
		errs = append(errs, fmt.Errorf("on_terminal: %s makes no sense for a start: the key of an instance that has ended is free again", r.OnTerminal))
	}
	return errors.Join(errs...)
}

func oneOf[T ~string](field string, value T, allowed ...T) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %q", field, value, allowed)
}

func (r Route) checkBounds() error {
	var errs []error
	for _, n := range []struct {
		field      string
		value, max int64
	}{
		{"hold_for", int64(r.HoldFor), 0},
		{"max_deliver", int64(r.MaxDeliver), 0},
		{"max_body", int64(r.MaxBody), 0},
		{"batch.size", int64(r.Batch.Size), maxBatchSize},
		{"batch.wait", int64(r.Batch.Wait), int64(maxBatchWait)},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("%s: is negative", n.field))
		}
		if n.max > 0 && n.value > n.max {
			errs = append(errs, fmt.Errorf("%s: is too large", n.field))
		}
	}
	return errors.Join(errs...)
}
