package bridge

import (
	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// lanes are the publications in hand, one lane for each instance: the head of a lane is on its way, what is behind it waits for it.
type lanes struct {
	byKey map[laneKey]*lane
	known map[int64]bool // rows in hand, those included that are out and not yet removed from the outbox
}

// laneKey is an instance; a row of no instance (a dead letter) has a lane of its own.
type laneKey struct {
	instance uuid.UUID
	row      int64
}

type lane struct {
	rows  []engine.Publication
	tries int // of the head, over a connection that was away
}

func newLanes() *lanes { return &lanes{byKey: map[laneKey]*lane{}, known: map[int64]bool{}} }

func keyOf(p engine.Publication) laneKey {
	if p.InstanceID == uuid.Nil {
		return laneKey{row: p.ID}
	}
	return laneKey{instance: p.InstanceID}
}

// add a row and say whether it is the head of its lane, to be sent now. A row that is in hand already is left alone.
func (l *lanes) add(p engine.Publication) (head bool) {
	if l.known[p.ID] {
		return false
	}
	l.known[p.ID] = true
	key := keyOf(p)
	if ln := l.byKey[key]; ln != nil {
		ln.rows = append(ln.rows, p)
		return false
	}
	l.byKey[key] = &lane{rows: []engine.Publication{p}}
	return true
}

// advance takes the head off its lane, as it is out, and returns the next one, if any. The row stays known until it is forgotten.
func (l *lanes) advance(key laneKey) (next engine.Publication, ok bool) {
	ln := l.byKey[key]
	ln.rows, ln.tries = ln.rows[1:], 0
	if len(ln.rows) == 0 {
		delete(l.byKey, key)
		return engine.Publication{}, false
	}
	return ln.rows[0], true
}

// drop a lane with all its rows: the outbox gives them again when the head is due.
func (l *lanes) drop(key laneKey) {
	for _, p := range l.byKey[key].rows {
		delete(l.known, p.ID)
	}
	delete(l.byKey, key)
}

// keepHeads drops what waits behind the heads: these shards may be another relay's now.
func (l *lanes) keepHeads() {
	for _, ln := range l.byKey {
		for _, p := range ln.rows[1:] {
			delete(l.known, p.ID)
		}
		ln.rows = ln.rows[:1]
	}
}

// forget rows that the outbox has no more.
func (l *lanes) forget(rows []int64) {
	for _, id := range rows {
		delete(l.known, id)
	}
}
