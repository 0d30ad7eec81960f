package bridge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// order keeps the messages of an ordered route in the order of the stream. The consumer may have given some to a bridge that held the
// route before, or may have lost some on the way: these come again, after later ones. So a session begins by keeping what comes, until
// the server says that nothing is out but what is kept here; from then on all that is delivered comes here, in the order of the stream,
// and what comes again is here already. When the consumer's sequence shows that a message did not come here, the session ends.
type order struct {
	mu     sync.Mutex
	open   bool
	last   uint64 // consumer sequence of the last message
	kept   []delivery
	lifted chan struct{} // closed when what is kept has been passed on
}

func newOrder() *order { return &order{lifted: make(chan struct{})} }

// follows fails if a message was delivered between this one and the one before. The goroutine that reads calls it.
func (o *order) follows(consumerSequence uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.last
	o.last = consumerSequence
	if before != 0 && consumerSequence != before+1 {
		return fmt.Errorf("%d messages were delivered elsewhere: reading on in order when they are here", int64(consumerSequence-before)-1)
	}
	return nil
}

// keep a message back; false: it may go on. It waits while what was kept is passed on.
func (o *order) keep(d delivery) bool {
	o.mu.Lock()
	if !o.open {
		o.kept = append(o.kept, d)
		o.mu.Unlock()
		return true
	}
	o.mu.Unlock()
	<-o.lifted
	return false
}

// orderPoll is how often the server is asked what is out.
const orderPoll = 100 * time.Millisecond

// wait until nothing is out but what is kept, and pass that on.
func (o *order) wait(ctx context.Context, b binding, r *reader) error {
	defer close(o.lifted)
	tick := time.NewTicker(orderPoll)
	defer tick.Stop()
	extended := time.Now()
	for {
		info, err := b.consumer.Info(r.ctx)
		if err == nil {
			if kept, complete := o.lift(info.NumAckPending, info.Delivered.Consumer); complete {
				r.passAll(kept)
				return nil
			}
		}
		if time.Since(extended) > r.route.ackWait/3 {
			extended = time.Now()
			o.mu.Lock()
			inProgress(o.kept)
			o.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			o.mu.Lock()
			r.letGo(o.kept)
			o.mu.Unlock()
			return nil
		case <-r.ctx.Done():
			return nil
		case <-r.gone:
			return nil
		case <-tick.C:
		}
	}
}

// lift opens the order if the messages that are out are those kept, and the last one that was delivered is among them.
func (o *order) lift(out int, delivered uint64) (kept []delivery, complete bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.SortStableFunc(o.kept, func(a, b delivery) int { return cmp.Compare(a.sequence, b.sequence) })
	// Of what came twice the later delivery is the one to be acked.
	distinct := o.kept[:0:0]
	for i, d := range o.kept {
		if i+1 == len(o.kept) || o.kept[i+1].sequence != d.sequence {
			distinct = append(distinct, d)
		}
	}
	if out != len(distinct) || o.last != 0 && o.last != delivered || o.last == 0 && out > 0 {
		return nil, false
	}
	o.kept, o.open = nil, true
	return distinct, true
}
