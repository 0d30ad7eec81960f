package bridge

import "time"

const (
	// maxBatchBytes ends a batch early: bodies go to Postgres in one statement.
	maxBatchBytes = 8 << 20
	// flow is the size of batch from which gathering pays. Below it messages come one by one, and each goes at once.
	flow = 8
)

// counter is where batches are handed over. Who takes one is told that it may come, and has it as it is by the time that he asks for it.
type counter struct {
	may chan struct{} // closed when no other batch comes
	out chan []delivery
}

func newCounter() counter { return counter{make(chan struct{}), make(chan []delivery)} }

// gather passes on batches in the order of the messages until gone is closed. A batch is offered as soon as it has one message, and
// grows until it is taken; only in a flow of messages is it held back for Batch.Wait, so that it is worth its transaction.
func (c *consumer) gather(in <-chan delivery, gone <-chan struct{}, to counter) {
	defer close(to.may)
	keep := time.NewTicker(c.route.ackWait / 3)
	defer keep.Stop()
	previous := 0
	for {
		size, open := c.gatherOne(in, gone, to, keep.C, previous)
		if !open {
			return
		}
		previous = size
	}
}

// gatherOne passes one batch on and returns its size; open is false when gone is closed.
func (c *consumer) gatherOne(
	in <-chan delivery, gone <-chan struct{}, to counter, keep <-chan time.Time, previous int,
) (size int, open bool) {
	var (
		batch          = make([]delivery, 0, previous)
		inFlow         = previous >= flow
		bytes, intakes int
		ready, told    bool // the batch may go, and who takes it knows
		due            <-chan time.Time
		more           = in // nil when the batch is full
	)
	for {
		var may chan<- struct{}
		var out chan<- []delivery
		switch {
		case told:
			out = to.out
		case ready:
			may = to.may
		}
		select {
		case <-gone:
			if len(batch) == 0 {
				return 0, false
			}
			ready, more, gone = true, nil, nil // the last one
		case d := <-more:
			batch, bytes, intakes = append(batch, d), bytes+len(d.body), intakes+max(1, len(d.intakes))
			switch full := intakes >= c.route.Batch.Size || bytes >= maxBatchBytes; {
			case full:
				ready, more = true, nil
			case len(batch) > 1:
			case inFlow && c.route.Batch.Wait > 0:
				due = time.After(c.route.Batch.Wait)
			default:
				ready = true
			}
		case <-due:
			ready, due = true, nil
		case may <- struct{}{}:
			told = true
		case out <- batch:
			return len(batch), gone != nil
		case <-keep:
			inProgress(batch)
		}
	}
}

// inProgress asks the server for another AckWait. It is best effort: what comes again is a duplicate.
func inProgress(batch []delivery) {
	for _, d := range batch {
		_ = d.InProgress()
	}
}
