package bridge

// maxFailures bounds the messages whose failures are remembered. Beyond it some are forgotten, and get more attempts than they should.
const maxFailures = 10_000

// place is where a message stands: a sequence of one incarnation of a route's stream.
type place struct {
	created  int64
	sequence uint64
}

// failures counts how often the inbox failed for a very message, as opposed to an outage, which counts for none. A message that
// another copy of the bridge takes over starts there from nothing. The goroutine that settles owns it.
type failures map[place]int

// add one failure of a message and return how many there are.
func (f failures) add(p place) int {
	if _, known := f[p]; !known && len(f) >= maxFailures {
		for other := range f {
			delete(f, other)
			break
		}
	}
	f[p]++
	return f[p]
}

// forget a message that is settled.
func (f failures) forget(p place) { delete(f, p) }
