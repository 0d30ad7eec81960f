package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// A message that failed comes again after a delay that doubles; never at once, which would be a storm.
const (
	firstRedelivery = time.Second
	lastRedelivery  = time.Minute
)

// decision is what is to be done with a message, and how it is counted.
type decision struct {
	fate   fate
	reason string // of a dead letter or a retry
}

func (d decision) deadLetter() bool { return d.fate == fateDeadLettered || d.fate == fateConflict }

// settle acks what is committed, sends back what failed, and has the dead letters stored before they are acked.
func (c *consumer) settle(ctx context.Context, batch []delivery, receipts []engine.Receipt) {
	decisions := make([]decision, len(batch))
	for i, d := range batch {
		n := len(d.intakes)
		decisions[i] = decideAll(d, receipts[:n])
		receipts = receipts[n:]
	}
	c.giveUp(ctx, batch, decisions)
	var letters []deadLetter
	var dead []delivery
	var deadFates []fate
	for i, d := range batch {
		decision := decisions[i]
		switch {
		case decision.deadLetter():
			letters = append(letters, deadLetter{route: c.route.Name, message: d.message, reason: decision.reason})
			dead, deadFates = append(dead, d), append(deadFates, decision.fate)
		case decision.fate == fateRetried:
			c.sendBack(d, fmt.Errorf("taken in: %s", decision.reason))
		default:
			c.ack(d, decision.fate)
		}
	}
	if len(letters) == 0 {
		return
	}
	var trouble error
	var again time.Duration
	for i, err := range c.letters.publish(ctx, letters) {
		if err != nil {
			trouble, again = err, max(again, c.sendBack(dead[i], err))
			continue
		}
		c.ack(dead[i], deadFates[i])
	}
	c.health.reportFor(partDeadLetters(c.route.Name), trouble, again)
}

// giveUp counts the failures of messages of their own, which outages are not, and makes dead letters of those that have had enough. What
// cannot be counted comes again.
func (c *consumer) giveUp(ctx context.Context, batch []delivery, decisions []decision) {
	failed := map[time.Time][]int{} // of one incarnation, but where that is not to be had
	for i, d := range decisions {
		if d.fate == fateRetried {
			failed[batch[i].created] = append(failed[batch[i].created], i)
		}
	}
	for created, at := range failed {
		fs := make([]engine.Failure, len(at))
		for k, i := range at {
			fs[k] = engine.Failure{Seq: batch[i].sequence, Reason: decisions[i].reason}
		}
		counts, err := c.journal.CountFailures(ctx, engine.Incarnation{Route: c.route.Name, Stream: batch[at[0]].stream, Created: created}, fs)
		if err != nil {
			c.log.Debug("count failures", "error", err)
			continue
		}
		for k, i := range at {
			if counts[k] >= c.route.MaxDeliver {
				decisions[i] = decision{fate: fateDeadLettered, reason: fmt.Sprintf("failed %d times, lastly: %s", counts[k], decisions[i].reason)}
			}
		}
	}
}

// decideAll says what becomes of a message from what became of its intakes: several, when its correlation key is a list. The worst counts; a
// message of which one part failed comes again as a whole, and its other parts are duplicates then.
func decideAll(d delivery, receipts []engine.Receipt) decision {
	if d.filtered {
		return decision{fate: fateFiltered}
	}
	if d.reason != "" {
		return decision{fate: fateDeadLettered, reason: d.reason}
	}
	worst := decide(receipts[0])
	for _, r := range receipts[1:] {
		if next := decide(r); severity(next.fate) > severity(worst.fate) {
			worst = next
		}
	}
	return worst
}

func decide(r engine.Receipt) decision {
	switch r.Result {
	case engine.Delivered:
		return decision{fate: fateDelivered}
	case engine.Duplicate:
		return decision{fate: fateDuplicate}
	case engine.Held:
		return decision{fate: fateHeld}
	case engine.Started:
		return decision{fate: fateStarted}
	case engine.Dropped:
		return decision{fate: fateDropped}
	case engine.Conflict:
		return decision{fate: fateConflict, reason: subjects.ReasonConflict + r.Reason}
	case engine.NoTarget:
		return decision{fate: fateDeadLettered, reason: subjects.ReasonNoTarget + r.Reason}
	case engine.Refused:
		return decision{fate: fateDeadLettered, reason: "refused: " + r.Reason}
	default:
		return decision{fate: fateRetried, reason: r.Reason}
	}
}

// severity orders fates by how much they ask for; among the harmless, a fact says more than its absence.
func severity(f fate) int {
	switch f {
	case fateRetried:
		return 4
	case fateDeadLettered:
		return 3
	case fateConflict:
		return 2
	case fateDropped, fateDuplicate:
		return 0
	default:
		return 1
	}
}

// ack a message whose fate is stored. A lost ack brings it again, as a duplicate.
func (c *consumer) ack(d delivery, f fate) {
	if err := d.Ack(); err != nil {
		c.log.Debug("ack", "sequence", d.sequence, "error", err)
	}
	c.metrics.count(f, d.stored)
	d.endSpan(f, nil)
}

// sendBack a message to be delivered again later, after the returned delay.
func (c *consumer) sendBack(d delivery, cause error) (delay time.Duration) {
	delay = doubling(firstRedelivery, lastRedelivery, int(min(d.deliveries, 32))-1)
	if err := d.NakWithDelay(delay); err != nil {
		c.log.Debug("nak", "sequence", d.sequence, "error", err)
	}
	c.metrics.count(fateRetried, d.stored)
	d.endSpan(fateRetried, cause)
	c.log.Debug("message comes again", "sequence", d.sequence, "delay", delay, "cause", cause)
	return delay
}
