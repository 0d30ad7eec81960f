package engine

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// How much one transaction commits at most, of outcomes (beyond it nothing is gained) and of bytes.
const (
	maxGroup      = 256
	maxGroupBytes = 16 << 20
)

// company is how long the first of n outcomes of a pick wait for the others, from when their steps began: one transaction costs less than two.
// It is about as long as n steps that do nothing take on a busy machine. For others nobody waits.
func company(n int) time.Duration { return time.Millisecond + time.Duration(n)*25*time.Microsecond }

// party is those who began together. The commit loop owns it after that.
type party struct {
	left  int       // whose outcomes have not come
	until time.Time // the first wait for the others
}

func newParty(n int) *party { return &party{n, time.Now().Add(company(n))} }

// arrived counts an outcome that has come to the commit loop.
func (f finished) arrived() finished {
	f.party.left--
	return f
}

// group takes what waits, and what is sure to come at once, but no more keys than a transaction should lock, and about as many other effects
// and bytes as it should have. What came and is too much is over, and begins the next group.
func (w *Worker) group(first finished) (group []finished, over *finished) {
	group = append(make([]finished, 0, min(maxGroup, 1+max(first.party.left, len(w.outcomes)))), first)
	keys, effects, bytes := first.weight()
	for parties := first.party.among(nil); len(group) < maxGroup && effects < maxScopes && bytes < maxGroupBytes; {
		f, ok := w.another(parties)
		if !ok {
			break
		}
		k, e, b := f.weight()
		if keys += k; keys > maxScopes {
			return group, &f
		}
		group, parties = append(group, f), f.party.among(parties)
		effects, bytes = effects+e, bytes+b
	}
	return group, nil
}

// among adds a party to others.
func (p *party) among(others []*party) []*party {
	if slices.Contains(others, p) {
		return others
	}
	return append(others, p)
}

// another outcome, if one has come, or one of these parties comes in time.
func (w *Worker) another(parties []*party) (f finished, ok bool) {
	select {
	case f := <-w.outcomes:
		return f.arrived(), true
	default:
	}
	var longest time.Duration
	for _, p := range parties {
		if p.left > 0 {
			longest = max(longest, time.Until(p.until))
		}
	}
	if longest <= 0 {
		return f, false
	}
	select {
	case f := <-w.outcomes:
		return f.arrived(), true
	case <-time.After(longest):
		return f, false
	}
}

// weight of an outcome: the keys that its effects need the locks of, the instances that these may touch, and about how many bytes it has.
func (f *finished) weight() (keys, effects, bytes int) {
	o := &f.outcome
	bytes = len(o.State) + len(o.Result)
	for _, e := range o.Events {
		bytes += len(e.Value)
	}
	for _, p := range o.Publish {
		bytes += len(p.Body)
	}
	for _, s := range o.Signals {
		bytes += len(s.Payload)
	}
	for _, n := range o.Starts {
		bytes += len(n.State)
	}
	for _, n := range o.Waits {
		bytes += len(n.RequestPayload)
	}
	for _, e := range o.Emits {
		bytes += len(e.Payload)
	}
	effects = len(o.Signals) + len(o.Starts) + len(o.Waits) + len(o.Emits)
	if o.Ends() && o.ParentID != uuid.Nil {
		effects++
	}
	return len(o.Scopes()), effects, bytes
}
