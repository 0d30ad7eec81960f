package engine

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Ref names an instance: by its id, or by its correlation key within a project.
// The zero Ref names nobody.
type Ref struct {
	project string
	key     string
	id      uuid.UUID
}

// ByID refers to the instance with this id, whatever its project.
func ByID(id uuid.UUID) Ref { return Ref{id: id} }

// ByKey refers to the live instance that holds this correlation key in the project. "" is the default project; in an effect of a step it
// is the project of the step's instance.
func ByKey(project, key string) Ref { return Ref{project: project, key: key} }

// In limits a reference by id to a project: another project's instance is not found by it. A reference by key has its project already.
func (r Ref) In(project string) Ref {
	if r.key == "" {
		r.project = project
	}
	return r
}

// Project of a reference by key; "" for a reference by id.
func (r Ref) Project() string { return r.named().project }

// named is r with the project that it names outside of effects.
func (r Ref) named() Ref {
	if r.key != "" && r.project == "" {
		r.project = DefaultProject
	}
	return r
}

// Key of a reference by key; "" for a reference by id.
func (r Ref) Key() string { return r.key }

// ID of a reference by id; [uuid.Nil] for a reference by key.
func (r Ref) ID() uuid.UUID { return r.id }

// DefaultProject is the project of whatever names none.
const DefaultProject = "default"

// OnMissing says what becomes of an [Intake] whose key no live or ended instance holds.
type OnMissing string

const (
	MissingReject OnMissing = "reject" // refused: the receipt says no_target
	MissingHold   OnMissing = "hold"   // kept for HoldFor, given to the instance that starts with that key
	MissingStart  OnMissing = "start"  // Intake.Start is started, and the signal put in its inbox, in one transaction
	MissingDrop   OnMissing = "drop"   // forgotten
)

// OnTerminal says what becomes of an [Intake] whose key was held last by an instance that has ended.
type OnTerminal string

const (
	TerminalReject OnTerminal = "reject" // refused: the receipt says no_target and names the ended instance
	TerminalDrop   OnTerminal = "drop"   // forgotten
	TerminalStart  OnTerminal = "start"  // as MissingStart
)

// Origin is where in JetStream a message stood first, and which route read it: what two routes make of one message are two
// signals. The zero Origin is no message.
type Origin struct {
	Route    string
	Stream   string
	Created  time.Time // of the stream: a stream that was made again counts its sequences from 1 again
	Sequence uint64
}

// IsZero reports whether o names no message.
func (o Origin) IsZero() bool { return o.Stream == "" }

// Message is the message an [Intake] was made from, kept with a held signal so that its dead letter can carry the original.
type Message struct {
	Route      string
	Subject    string
	Headers    map[string][]string
	Deliveries uint64
	Stored     time.Time // by its stream
	Stream     string    // it was read from, and its place there, where these are not the Origin's: it is a copy
	Sequence   uint64
}

// Intake is one signal, one start, or one event for a trigger, on its way in. It has a Name, a Start, or both, or an Event alone.
type Intake struct {
	To      Ref
	Name    string          // of the signal; "": Start or Event alone
	Event   string          // the key of the trigger; To is its project then, [ByKey] without a key
	Payload json.RawMessage // JSON, at most 1 MiB; nil is null

	// DedupKey makes a second intake with the same key for the same target a duplicate, also after the first was consumed.
	// "" is never a duplicate.
	DedupKey string
	// Body is what a second intake with the same DedupKey is compared with, as it was received; nil: Payload.
	// One with another Name or Body is a conflict, not a duplicate.
	Body []byte

	Origin Origin
	// Redelivered says that this Origin may have been taken in before, perhaps under another DedupKey. It costs a look-up.
	Redelivered bool

	OnMissing  OnMissing     // zero: MissingReject
	OnTerminal OnTerminal    // zero: TerminalReject
	HoldFor    time.Duration // zero: an hour
	Start      *NewInstance  // for MissingStart and TerminalStart, or alone; its project and correlation key are To's

	SentBy      string // who sent it, as the inbox shows it; "" where nobody has to say
	Traceparent string
	Message     *Message // of a signal that may be held
}

// Result is what became of an [Intake].
type Result string

const (
	Delivered Result = "delivered" // a new signal in the inbox
	Duplicate Result = "duplicate" // of one that was delivered, held or started before
	Conflict  Result = "conflict"  // its dedup key was used before with another name or body; the first stands
	Held      Result = "held"
	Started   Result = "started"   // an instance, and the signal (if any) is in its inbox
	NoTarget  Result = "no_target" // nobody holds the key, or whoever held it has ended (Receipt.Ended), or no trigger waits for the event
	Dropped   Result = "dropped"   // as NoTarget, where the intake asked to forget it
	Refused   Result = "refused"   // can never be stored; Receipt.Reason says why
	Failed    Result = "failed"    // not stored this time: Receipt.Reason; every other receipt of the batch stands
)

// Ended is the last instance that held a key.
type Ended struct {
	ID     uuid.UUID
	Status Status
	At     time.Time
}

// Receipt says what became of one [Intake]. Whatever it says has been committed.
type Receipt struct {
	Result     Result
	InstanceID uuid.UUID // of Delivered, Duplicate, Conflict and Started, where it is known
	SignalID   int64     // of Delivered, Duplicate and Started with a signal
	Reason     string    // of Conflict, NoTarget, Refused and Failed
	Ended      *Ended    // of NoTarget and Dropped, where there was one
}
