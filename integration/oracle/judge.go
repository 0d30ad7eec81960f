package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind of a violation.
type Kind string

// The kinds, by the guarantee of the contract's section 8 that they break.
const (
	Lost       Kind = "lost"             // 1: neither consumed nor dead, and it should be
	Unexpected Kind = "unexpected"       // 1: dead, or consumed, and it should not be; or for another
	Doubled    Kind = "doubled"          // 2: consumed twice, or two instances of one start
	Slept      Kind = "slept"            // 3: a parked instance has a signal that it waits for and was not handed
	Forked     Kind = "forked"           // 4: a commit counted that should not
	Torn       Kind = "torn"             // 4: state without its effects, or the other way
	Untold     Kind = "untold"           // 5: no outcome of an end, or one that is not its
	Unstable   Kind = "unstable"         // 5: one Nats-Msg-Id with two bodies, or one end with two ids
	Reordered  Kind = "out of order"     // 6
	Overlapped Kind = "overlapped"       // 7
	Unended    Kind = "unended"          // 3: an instance does not get on
	Vanished   Kind = "lost in a stream" // none of ours: JetStream acked a message and does not have it
)

// Violation of a guarantee.
type Violation struct {
	Kind Kind
	Text string
}

func (v Violation) String() string { return string(v.Kind) + ": " + v.Text }

// Passing reports whether a violation may be none any more when more has come.
func (v Violation) Passing() bool {
	switch v.Kind {
	case Lost, Torn, Untold, Unended, Slept:
		return true
	}
	return false
}

// Parked is an instance that waits, as the views show it.
type Parked struct {
	Instance, Key string
	Inbox         []Seen
}

// verdict is a judgement on its way: an account that stands still, arranged for the checks.
type verdict struct {
	*Account
	chains     map[string][]Record // by instance, by Seq
	byEvent    map[string][]Record // who consumed it
	starts     map[string][]Record // first records by the event of their start
	instances  map[string]string   // by key
	dead       map[string][]Letter
	parked     []Parked
	violations []Violation
}

// Judge the account: all that is wrong with it, or not there yet. parked are the instances that wait now.
func (a *Account) Judge(parked []Parked) []Violation {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &verdict{Account: a, chains: map[string][]Record{}, byEvent: map[string][]Record{}, starts: map[string][]Record{}, instances: map[string]string{}, dead: map[string][]Letter{}, parked: parked}
	for _, id := range slices.Sorted(maps.Keys(a.records)) {
		r := a.records[id]
		v.chains[r.Instance] = append(v.chains[r.Instance], r)
		for _, s := range r.Consumed {
			v.byEvent[s.Event] = append(v.byEvent[s.Event], r)
		}
	}
	for _, chain := range v.chains {
		slices.SortFunc(chain, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Began, b.Began)) })
		if chain[0].Seq == 1 && chain[0].Start != "" {
			v.starts[chain[0].Start] = append(v.starts[chain[0].Start], chain[0])
		}
	}
	for _, l := range a.letters {
		v.dead[l.Event] = append(v.dead[l.Event], l)
	}
	v.checkEvents()
	v.checkStrangers()
	v.checkChains()
	v.checkOutcomes()
	v.checkIDs()
	v.checkMissing()
	v.checkOrder()
	v.checkPartitions()
	v.checkUnique()
	v.checkParked()
	return v.violations
}

func (v *verdict) say(k Kind, format string, args ...any) {
	v.violations = append(v.violations, Violation{k, fmt.Sprintf(format, args...)})
}

// checkEvents compares the fate of each event with what it has to be.
func (v *verdict) checkEvents() {
	rivals := map[string][]*Event{}
	for _, id := range slices.Sorted(maps.Keys(v.events)) {
		e := v.events[id]
		if v.acked[id] && len(v.stored[id]) == 0 {
			v.say(Vanished, "%s was acked and is in no stream", id)
		}
		v.checkOnce(e)
		if !e.Internal && e.Want != Asked && len(v.stored[id]) == 0 {
			continue // it has not happened yet
		}
		if e.Rival != "" {
			rivals[e.Rival] = append(rivals[e.Rival], e)
			continue
		}
		v.checkFate(e)
	}
	for name, es := range rivals {
		v.checkRivals(name, es)
	}
}

func (v *verdict) happened(e *Event) int { return len(v.byEvent[e.ID]) + len(v.starts[e.ID]) }

// checkOnce: whatever is wanted of it, no event counts twice, and none for somebody else.
func (v *verdict) checkOnce(e *Event) {
	most := 1
	if e.Unkeyed {
		most = max(1, len(v.stored[e.ID]))
	}
	if n := v.happened(e); n > most {
		v.say(Doubled, "%s counted %d times: %s", e.ID, n, describe(append(v.byEvent[e.ID], v.starts[e.ID]...)))
	}
	for _, r := range append(slices.Clone(v.byEvent[e.ID]), v.starts[e.ID]...) {
		if r.Key != e.Key {
			v.say(Unexpected, "%s is for %s, and was for %s of instance %s", e.ID, e.Key, r.Key, r.Instance)
		}
	}
	for _, r := range v.byEvent[e.ID] {
		for _, s := range r.Consumed {
			if s.Event == e.ID && s.Name != e.Name {
				v.say(Unexpected, "%s is a signal %q, and came as %q", e.ID, e.Name, s.Name)
			}
		}
	}
}

func (v *verdict) checkFate(e *Event) {
	n, dead := v.happened(e), v.dead[e.ID]
	switch {
	case e.Unkeyed && n > 0 && len(v.stored[e.ID]) > n: // the others are messages of their own, which may come too late
	case n > 0 && len(dead) > 0:
		v.say(Unexpected, "%s counted, and is a dead letter as well: %s", e.ID, dead[0].Reason)
	case (e.Want == Consumed || e.Want == Starts) && len(dead) > 0:
		v.say(Unexpected, "%s is a dead letter: %s", e.ID, dead[0].Reason)
	case (e.Want == Consumed || e.Want == Starts) && n == 0:
		v.say(Lost, "%s (%q for %s)", e.ID, e.Name, e.Key)
	case (e.Want == Dead || e.Want == Filtered) && n > 0:
		v.say(Unexpected, "%s counted", e.ID)
	case e.Want == Dead && len(dead) == 0:
		v.say(Lost, "%s is not in the dead letters", e.ID)
	case e.Want == Filtered && len(dead) > 0:
		v.say(Unexpected, "%s is a dead letter: %s", e.ID, dead[0].Reason)
	case e.Want == Asked:
		answer, answered := v.answers[e.ID]
		if answered && answer.Instance != "" && n == 0 {
			v.say(Lost, "%s was answered with instance %s, of which nothing is heard", e.ID, answer.Instance)
		}
		if answered && answer.Instance == "" && n > 0 {
			v.say(Unexpected, "%s was refused, and instance %s runs", e.ID, v.starts[e.ID][0].Instance)
		}
		if answered && answer.Instance != "" && n > 0 && v.starts[e.ID][0].Instance != answer.Instance {
			v.say(Unexpected, "%s was answered with instance %s, and instance %s runs", e.ID, answer.Instance, v.starts[e.ID][0].Instance)
		}
	}
}

// checkRivals: of the events with one dedup key the first that is taken in counts, and the others are conflicts.
func (v *verdict) checkRivals(name string, es []*Event) {
	counted := 0
	for _, e := range es {
		n, dead := v.happened(e), len(v.dead[e.ID])
		counted += n
		switch {
		case n > 0 && dead > 0:
			v.say(Unexpected, "%s counted, and is a dead letter as well", e.ID)
		case n == 0 && dead == 0:
			v.say(Lost, "%s, one of those with the dedup key %s", e.ID, name)
		}
	}
	if counted > 1 {
		v.say(Doubled, "%d events with the dedup key %s counted", counted, name)
	}
}

// checkStrangers: nothing is consumed, started or dead that nobody has sent. A letter is one of its place.
func (v *verdict) checkStrangers() {
	for event, rs := range v.byEvent {
		if v.events[event] == nil {
			v.say(Unexpected, "nobody has sent %q: %s", event, describe(rs))
		}
	}
	for event, rs := range v.starts {
		if v.events[event] == nil {
			v.say(Unexpected, "nobody has sent %q: %s", event, describe(rs))
		}
	}
	places := map[string]string{}
	for _, l := range v.letters {
		if v.events[l.Event] == nil {
			v.say(Unexpected, "dead letter of %s, event %q, which nobody has sent: %s", l.Place, l.Event, l.Reason)
		}
		if before, ok := places[l.Place]; ok {
			v.say(Unstable, "the dead letter of %s has two ids, %s and %s", l.Place, before, l.MsgID)
		}
		places[l.Place] = l.MsgID
	}
}

// checkChains: the records of an instance follow from one another, one by one.
func (v *verdict) checkChains() {
	for instance, chain := range v.chains {
		if other, taken := v.instances[chain[0].Key]; taken {
			v.say(Doubled, "%s has the instances %s and %s", chain[0].Key, instance, other)
		}
		v.instances[chain[0].Key] = instance
		v.checkWakes(instance, chain)
		prev, seq := "", 0
		for i, r := range chain {
			switch {
			case r.Seq == seq:
				v.say(Forked, "instance %s of %s committed twice as number %d: %s", instance, r.Key, seq, describe(chain[i-1:i+1]))
			case r.Seq != seq+1:
				v.say(Torn, "instance %s of %s: after number %d comes %d", instance, r.Key, seq, r.Seq)
			case r.Prev != prev:
				v.say(Forked, "instance %s of %s: number %d does not follow from the one before: %s", instance, r.Key, r.Seq, describe(chain[max(0, i-1):i+1]))
			}
			prev, seq = r.Link, r.Seq
		}
		for i, r := range chain {
			if r.Ends && i < len(chain)-1 {
				v.say(Forked, "instance %s of %s goes on after its end: %s", instance, r.Key, describe(chain[i:]))
			}
		}
	}
}

// checkWakes: who waited goes on with something that it waited for, or when the time is up and not before.
func (v *verdict) checkWakes(instance string, chain []Record) {
	for i := 1; i < len(chain); i++ {
		before, r := chain[i-1], chain[i]
		switch {
		case len(before.Awaits) == 0:
		case r.TimedOut && (before.Within == 0 || r.Began < before.Stopped+before.Within):
			v.say(Unexpected, "instance %s of %s timed out %s after it parked for %s", instance, r.Key, time.Duration(r.Began-before.Stopped), time.Duration(before.Within))
		case !r.TimedOut && r.Got == 0:
			v.say(Unexpected, "instance %s of %s was woken by nothing: %s", instance, r.Key, describe(chain[i-1:i+1]))
		}
	}
}

// checkOutcomes: each end is told, as it was, under one id.
func (v *verdict) checkOutcomes() {
	told := map[string]Outcome{}
	for _, o := range v.outcomes {
		if before, ok := told[o.Instance]; ok && before.MsgID != o.MsgID {
			v.say(Unstable, "the end of instance %s has the ids %s and %s", o.Instance, before.MsgID, o.MsgID)
		}
		told[o.Instance] = o
	}
	for instance, chain := range v.chains {
		last := chain[len(chain)-1]
		o, ok := told[instance]
		switch {
		case !last.Ends && ok:
			v.say(Torn, "instance %s of %s is told to be %s, and its record number %d is not its end", instance, last.Key, o.Status, last.Seq)
		case !last.Ends:
			v.say(Unended, "instance %s of %s: the last is %s", instance, last.Key, describe(chain[len(chain)-1:]))
		case !ok:
			v.say(Untold, "the end of instance %s of %s", instance, last.Key)
		case o.Link != last.Link:
			v.say(Torn, "instance %s of %s ended with the state of link %s, and its last record is %s", instance, last.Key, o.Link, last.Link)
		}
	}
	for key, link := range v.values {
		instance := v.instances[key]
		if chain := v.chains[instance]; len(chain) > 0 && chain[len(chain)-1].Link != link {
			v.say(Torn, "instance %s of %s published %s last, and its last record is %s", instance, key, link, chain[len(chain)-1].Link)
		}
	}
	for instance, o := range told {
		if v.chains[instance] == nil {
			v.say(Torn, "instance %s is told to be %s, and none of its records came: %s", instance, o.Status, o.Body)
		}
	}
}

// checkMissing: what left the outbox is in its stream. Where JetStream has said that it is, this is none of ours.
func (v *verdict) checkMissing() {
	for _, id := range slices.Sorted(maps.Keys(v.missing)) {
		where, told := v.told[id]
		switch {
		case v.found[id]: // it came late
		case told:
			v.say(Vanished, "%s, %s, was acked as %s and is not there", id, v.missing[id], where)
		default:
			v.say(Untold, "%s, %s, left the outbox, and nobody says that a stream has it", id, v.missing[id])
		}
	}
}

func (v *verdict) checkIDs() {
	for id, body := range v.changed {
		v.say(Unstable, "%s came with %s and with %s", id, v.bodies[id], body)
	}
}

// checkOrder: what an instance consumed of a lane stands in the order of the stream.
func (v *verdict) checkOrder() {
	for instance, chain := range v.chains {
		last := map[string]Stored{}
		for _, r := range chain {
			for _, s := range r.Consumed {
				e := v.events[s.Event]
				if e == nil || e.Lane == "" || len(v.stored[s.Event]) == 0 {
					continue
				}
				at := v.stored[s.Event][0]
				if before, ok := last[e.Lane]; ok && before.Seq > at.Seq {
					v.say(Reordered, "instance %s of %s consumed %s (%d) after %s (%d)", instance, r.Key, at.Event, at.Seq, before.Event, before.Seq)
				}
				last[e.Lane] = at
			}
		}
	}
}

// checkPartitions: executions that counted, of one partition key, come one after another. All clocks are this machine's.
func (v *verdict) checkPartitions() {
	of := map[string][]Record{}
	for _, chain := range v.chains {
		for _, r := range chain {
			if r.Lane != "" {
				of[r.Lane] = append(of[r.Lane], r)
			}
		}
	}
	for lane, rs := range of {
		v.apart("executions of the partition key "+lane, rs)
	}
}

// checkUnique: lives of one unique key come one after another.
func (v *verdict) checkUnique() {
	of := map[string][]Record{}
	for _, chain := range v.chains {
		first, last := chain[0], chain[len(chain)-1]
		if first.Unique == "" {
			continue
		}
		life := first
		if life.Stopped = last.Stopped; !last.Ends {
			continue // until when is not known; whoever has the key next ends after it began, and is found then
		}
		of[first.Unique] = append(of[first.Unique], life)
	}
	for key, lives := range of {
		v.apart("lives with the unique key "+key, lives)
	}
}

func (v *verdict) apart(what string, rs []Record) {
	slices.SortFunc(rs, func(a, b Record) int { return cmp.Compare(a.Began, b.Began) })
	for i := 1; i < len(rs); i++ {
		if rs[i].Began < rs[i-1].Stopped {
			v.say(Overlapped, "%s: %s", what, describe(rs[i-1:i+1]))
		}
	}
}

// checkParked: nobody sleeps on a signal that he waits for, unless it is one that he was handed and waits for more.
func (v *verdict) checkParked() {
	for _, p := range v.parked {
		chain := v.chains[p.Instance]
		if len(chain) == 0 {
			continue // its record is on the way
		}
		last := chain[len(chain)-1]
		for _, s := range p.Inbox {
			if slices.Contains(last.Awaits, s.Name) && s.ID > last.Handed {
				v.say(Slept, "instance %s of %s waits for %s, and %q (%s, id %d) is in its inbox; the newest that it was handed is %d", p.Instance, p.Key, strings.Join(last.Awaits, ", "), s.Name, s.Event, s.ID, last.Handed)
			}
		}
	}
}

func describe(rs []Record) string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = fmt.Sprintf("{%s %s #%d %s→%s step %s visit %s attempt %d worker %d %d..%d consumed %v}", r.Key, r.Instance, r.Seq, r.Prev, r.Link, r.Step, r.Visit, r.Attempt, r.Worker, r.Began, r.Stopped, r.Consumed)
	}
	return strings.Join(texts, " ")
}

// Kinds are all.
func Kinds() []Kind {
	return []Kind{Lost, Doubled, Reordered, Slept, Unended, Forked, Torn, Untold, Unstable, Overlapped, Unexpected, Vanished}
}
