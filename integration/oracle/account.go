package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Want is what has to become of an event.
type Want int

const (
	Consumed Want = iota // by one instance of its key, once
	Starts               // an instance of its key, one
	Dead                 // it is a dead letter, and nothing else
	Filtered             // nothing is ever seen of it
	Once                 // consumed once, or not at all: what comes while an instance ends goes with it; what comes later is dead
	Asked                // a start by a request: it starts one instance, or it was refused and starts none
)

// Event is something that is to happen once in the world, in however many messages it comes.
type Event struct {
	ID    string // unique in a run
	Key   string // correlation key of whom it is for
	Name  string // of the signal
	Want  Want
	Rival string // events with one Rival have one dedup key: the first that is taken in counts as it wants, the others are dead
	Lane  string // events of one key and lane are consumed in the order of their stream; "": in any
	// Unkeyed events have no dedup key: each of their messages counts, and there is more than one where an ack of JetStream was lost.
	Unkeyed bool
	// Internal events are effects of steps: no stream has them.
	Internal bool
	At       time.Time
}

// HeaderEvent is the header of a message that names its event.
const HeaderEvent = "Oracle-Event"

// Record is what a step publishes with its outcome.
type Record struct {
	Instance string `json:"instance"`
	Machine  string `json:"machine"`
	Key      string `json:"key"`
	Seq      int    `json:"seq"` // of this instance's commits, from 1
	Prev     string `json:"prev"`
	Link     string `json:"link"` // new with every execution
	Step     string `json:"step"`
	Visit    string `json:"visit"` // idempotency key
	Attempt  int    `json:"attempt"`
	Start    string `json:"start"` // the event that started the instance; "": one of its signals did
	Consumed []Seen `json:"consumed,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	// Awaits are the signals that it parks for, and Handed is the newest signal that the step could see.
	Awaits  []string `json:"awaits,omitempty"`
	Handed  int64    `json:"handed,omitempty"`
	Within  int64    `json:"within,omitempty"` // nanoseconds until the deadline
	Got     int      `json:"got,omitempty"`    // signals that were awaited and are here
	Ends    bool     `json:"ends,omitempty"`
	Lane    string   `json:"partition,omitempty"` // its partition key
	Unique  string   `json:"unique,omitempty"`
	Worker  int      `json:"worker"`
	Began   int64    `json:"began"` // unix nanoseconds of the step's first and last moments
	Stopped int64    `json:"stopped"`
}

// Seen is a signal as a step was handed it.
type Seen struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Event string `json:"event"`
}

// Outcome is a published end.
type Outcome struct {
	MsgID    string
	Instance string
	Status   string
	Link     string // of the last record
	Body     string
}

// Letter is a dead letter.
type Letter struct {
	MsgID  string
	Event  string
	Place  string // stream and sequence
	Reason string
}

// Stored is a message of a source stream.
type Stored struct {
	Stream string
	Seq    uint64
	Event  string
}

// Account is all that is known. It is safe for concurrent use.
type Account struct {
	mu       sync.Mutex
	events   map[string]*Event
	acked    map[string]bool // events of which a message was acked by JetStream
	stored   map[string][]Stored
	records  map[string]Record // by Nats-Msg-Id
	bodies   map[string]string // by Nats-Msg-Id: what it was with at first
	again    int               // messages with an id that was there before
	outcomes []Outcome
	letters  []Letter
	answers  map[string]Answer
	values   map[string]string // links that instances published last, by key
	changed  map[string][]byte // messages whose id has come with another body
	found    map[string]bool   // by Nats-Msg-Id: publications that their streams have
	missing  map[string]string // by Nats-Msg-Id: publications that left the outbox, and that their streams did not have
	told     map[string]string // by Nats-Msg-Id: where a bridge was told that a stream has them
	ended    map[string]bool   // keys of instances that have ended
	started  map[string]string // start events to instances
	consumed map[string]bool
	buried   map[string]bool
	news     chan struct{} // closed when something comes
	last     time.Time
}

// Answer to a request to start.
type Answer struct {
	Instance string // "": refused
}

// NewAccount is empty.
func NewAccount() *Account {
	return &Account{
		events: map[string]*Event{}, acked: map[string]bool{}, stored: map[string][]Stored{}, records: map[string]Record{}, bodies: map[string]string{}, answers: map[string]Answer{}, values: map[string]string{},
		changed: map[string][]byte{}, found: map[string]bool{}, missing: map[string]string{}, told: map[string]string{}, ended: map[string]bool{}, started: map[string]string{}, consumed: map[string]bool{}, buried: map[string]bool{}, news: make(chan struct{}),
	}
}

// Expect an event. It comes before the event happens.
func (a *Account) Expect(e Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.events[e.ID] != nil {
		panic("oracle: two events are " + e.ID)
	}
	e.At = time.Now()
	a.events[e.ID] = &e
}

// Acked says that JetStream has a message of the event.
func (a *Account) Acked(event string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acked[event] = true
}

// Answered notes what a request to start was answered with.
func (a *Account) Answered(event string, answer Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[event] = answer
}

// Value notes the link that an ended instance has as a published value.
func (a *Account) Value(key, link string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values[key] = link
}

// Store notes a message of a source stream.
func (a *Account) Store(s Stored) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stored[s.Event] = append(a.stored[s.Event], s)
	a.tell()
}

// Found notes that a publication's stream has it.
func (a *Account) Found(msgID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found[msgID] = true
}

// IsFound reports whether its stream has a publication.
func (a *Account) IsFound(msgID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found[msgID]
}

// Missing notes that a publication left the outbox, and that its stream was read and does not have it.
func (a *Account) Missing(msgID, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missing[msgID] = what
}

// Told notes what a bridge says that it was told: that a stream has a publication. It is asked only whose fault it is where none has.
func (a *Account) Told(msgID, where string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[msgID] = where
}

// Record notes a record as its message has it.
func (a *Account) Record(msgID string, body []byte) error {
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("record %s: %w", msgID, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.fresh("record "+msgID, body) {
		return nil
	}
	a.records[msgID] = r
	for _, s := range r.Consumed {
		a.consumed[s.Event] = true
	}
	if r.Seq == 1 && r.Start != "" {
		a.started[r.Start] = r.Instance
	}
	if r.Ends {
		a.ended[r.Key] = true
	}
	a.tell()
	return nil
}

// Outcome notes a published end.
func (a *Account) Outcome(o Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fresh("outcome "+o.MsgID, []byte(o.Body)) {
		a.outcomes = append(a.outcomes, o)
		a.tell()
	}
}

// Letter notes a dead letter.
func (a *Account) Letter(l Letter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fresh("letter "+l.MsgID, []byte(l.Event)) { // why may be another reason when its message is read again
		a.letters = append(a.letters, l)
		a.buried[l.Event] = true
		a.tell()
	}
}

// fresh reports whether the id is new. One that comes again has to come with the same.
func (a *Account) fresh(id string, body []byte) bool {
	before, known := a.bodies[id]
	if !known {
		a.bodies[id] = string(body)
		return true
	}
	a.again++
	if before != string(body) {
		a.changed[id] = body
	}
	return false
}

func (a *Account) tell() {
	close(a.news)
	a.news = make(chan struct{})
	a.last = time.Now()
}

// Quiet is how long nothing has come.
func (a *Account) Quiet() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.last)
}

// Ended reports whether an instance of the key has ended.
func (a *Account) Ended(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended[key]
}

// Happened reports whether an event was consumed, or has started an instance.
func (a *Account) Happened(event string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.consumed[event] || a.started[event] != ""
}

// Buried reports whether an event is a dead letter.
func (a *Account) Buried(event string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buried[event]
}

// News is closed when something comes.
func (a *Account) News() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.news
}

// Counts of what was seen.
type Counts struct {
	Events, Messages, Instances, Records, Outcomes, Letters int
	Again                                                   int // publications that came more than once, with their ids
}

// Count what was seen so far.
func (a *Account) Count() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := Counts{Events: len(a.events), Records: len(a.records), Outcomes: len(a.outcomes), Letters: len(a.letters), Again: a.again}
	for _, s := range a.stored {
		c.Messages += len(s)
	}
	instances := map[string]bool{}
	for _, r := range a.records {
		instances[r.Instance] = true
	}
	c.Instances = len(instances)
	return c
}

// Records returns all, in no order.
func (a *Account) Records() []Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.records))
}
