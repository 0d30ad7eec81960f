package subjects

import (
	"fmt"
	"strings"
)

// DefaultPrefix is the prefix of a [Space] that was given none.
const DefaultPrefix = "pointsman"

// SignalsRoute is the name of the built-in route, which consumes [Space.SignalFilter].
// No route of a user may have it.
const SignalsRoute = "signals"

// Service is the name of the NATS micro service that answers [Space.API].
const Service = "pointsman"

// Space is the set of names under one prefix. It is a small value: copy it. The zero Space is not usable, [New] makes one.
//
// Arguments are not checked: they are names that passed the validator of keys and names at the entry.
// A name that may hold dots (a signal, a step, an update) gives a usable subject only where it has no empty token,
// as "a..b" has.
type Space struct {
	prefix  string // "acme.pointsman"
	streams string // "ACME_POINTSMAN"
	durable string // "acme_pointsman"
}

// New makes the names under prefix, which is one or more subject tokens of letters, digits, '_' and '-'; "" is [DefaultPrefix].
//
// Stream names are the prefix in upper case and have '_' for '.', so the prefixes of two systems on one
// NATS account must differ in more than that.
func New(prefix string) (Space, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	for token := range strings.SplitSeq(prefix, ".") {
		if !plainToken(token) {
			return Space{}, fmt.Errorf("subject prefix %q: want tokens of A-Z a-z 0-9 _ - separated by single dots", prefix)
		}
	}
	flat := strings.ReplaceAll(prefix, ".", "_")
	return Space{prefix: prefix, streams: strings.ToUpper(flat), durable: flat}, nil
}

func plainToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

// Prefix of all subjects of s.
func (s Space) Prefix() string { return s.prefix }

// Signal is where a message for the built-in route is published.
func (s Space) Signal(name string) string { return s.prefix + ".signal." + name }

// SignalFilter matches every [Space.Signal].
func (s Space) SignalFilter() string { return s.prefix + ".signal.>" }

// SignalName is the inverse of [Space.Signal]. A name may hold dots, so it is all that follows.
func (s Space) SignalName(subject string) (name string, ok bool) {
	name, ok = strings.CutPrefix(subject, s.prefix+".signal.")
	return name, ok && name != ""
}

// Outcome is where the terminal outcome of an instance is published.
func (s Space) Outcome(project, machine, status string) string {
	return s.prefix + ".outcome." + project + "." + machine + "." + status
}

// OutcomeFilter matches every [Space.Outcome].
func (s Space) OutcomeFilter() string { return s.prefix + ".outcome.>" }

// DeadLetter is where the dead letters of a route are published.
func (s Space) DeadLetter(route string) string { return s.prefix + ".dlq." + route }

// DeadLetterFilter matches every [Space.DeadLetter].
func (s Space) DeadLetterFilter() string { return s.prefix + ".dlq.>" }

// Step is where the step of a remote machine is requested. A step's name may hold dots.
func (s Space) Step(machine, step string) string { return s.prefix + ".step." + machine + "." + step }

// Validate is where the verdict on an update of a remote machine is requested.
func (s Space) Validate(machine, update string) string {
	return s.prefix + ".validate." + machine + "." + update
}

// Wake is where it is told that a queue may have work.
func (s Space) Wake(queue string) string { return s.prefix + ".wake." + queue }

// WakeFilter matches every [Space.Wake].
func (s Space) WakeFilter() string { return s.prefix + ".wake.*" }

// Notice is where it is told which instances have changed, and how: an ending or another change.
func (s Space) Notice(topic string) string { return s.prefix + ".notice." + topic }

// NoticeFilter matches every [Space.Notice].
func (s Space) NoticeFilter() string { return s.prefix + ".notice.*" }

// API is where a verb of the request API is served.
func (s Space) API(verb string) string { return s.prefix + ".api." + verb }

// SignalsStream holds what [Space.SignalFilter] matches.
func (s Space) SignalsStream() string { return s.streams + "_SIGNALS" }

// OutcomesStream holds what [Space.OutcomeFilter] matches.
func (s Space) OutcomesStream() string { return s.streams + "_OUTCOMES" }

// DeadLettersStream holds what [Space.DeadLetterFilter] matches.
func (s Space) DeadLettersStream() string { return s.streams + "_DLQ" }

// Durable is the name of a route's durable consumer.
func (s Space) Durable(route string) string { return s.durable + "-" + route }
