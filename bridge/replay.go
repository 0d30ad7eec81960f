package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Taker takes intakes in, and says of others what would become of them; an [engine.Client] is one.
type Taker interface {
	Inbox
	LookAll(ctx context.Context, batch []engine.Intake) ([]engine.Record, error)
}

// Replayer gives dead letters again to the routes that refused them, as they are now. It does not publish them again: a message keeps its
// place in its stream, and with it what makes it the same message to the ledger. Make it with [NewReplayer].
type Replayer struct {
	letters *Letters
	mapper  *Mapper
	taker   Taker
}

// NewReplayer replays for these routes.
func NewReplayer(letters *Letters, mapper *Mapper, taker Taker) *Replayer {
	return &Replayer{letters: letters, mapper: mapper, taker: taker}
}

// Replayed is what became of a dead letter, or would.
type Replayed struct {
	Letter     Letter
	Fate       string // [FateDeadLettered] and [FateConflict]: it is refused again; [FatePending]: it failed for now
	Reason     string
	InstanceID uuid.UUID
	SignalID   int64
	Stays      bool // in the dead letters
}

// Replay takes the messages of dead letters in, then deletes those of which each has a fate now. What is refused again stays. When the
// process ends between the two, the next replay finds a duplicate. Letters of one route are taken in in the order of the slice. An error
// means that the database or NATS could not be asked, to the end: some may have been taken in, and all can be given again.
func (r *Replayer) Replay(ctx context.Context, letters []Letter) ([]Replayed, error) {
	again := r.mapAll(letters)
	receipts, err := r.taker.Accept(ctx, intakesOf(again))
	if err != nil {
		return nil, err
	}
	out := make([]Replayed, len(letters))
	for i, m := range again {
		n := len(m.intakes)
		out[i] = replayed(letters[i], m, receipts[:n])
		receipts = receipts[n:]
	}
	for i := range out {
		if out[i].Stays {
			continue
		}
		if err := r.letters.remove(ctx, out[i].Letter.Seq); err != nil {
			out[i].Stays = true
			out[i].Reason = strings.TrimPrefix(out[i].Reason+"; ", "; ") + "the dead letter could not be deleted: " + err.Error()
		}
	}
	return out, nil
}

// Would says what Replay would make of dead letters now. It changes nothing.
func (r *Replayer) Would(ctx context.Context, letters []Letter) ([]Replayed, error) {
	again := r.mapAll(letters)
	records, err := r.taker.LookAll(ctx, intakesOf(again))
	if err != nil {
		return nil, err
	}
	out := make([]Replayed, len(letters))
	for i, m := range again {
		receipts := make([]engine.Receipt, len(m.intakes))
		for k := range receipts {
			receipts[k] = engine.Receipt{Result: records[k].Would, InstanceID: records[k].Target, Ended: records[k].Ended, Reason: "as it is now"}
		}
		records = records[len(m.intakes):]
		out[i] = replayed(letters[i], m, receipts)
	}
	return out, nil
}

func (r *Replayer) mapAll(letters []Letter) []mapping {
	all := make([]mapping, len(letters))
	for i, l := range letters {
		all[i] = r.mapAgain(l)
	}
	return all
}

func intakesOf(ms []mapping) (all []engine.Intake) {
	for _, m := range ms {
		all = append(all, m.intakes...)
	}
	return all
}

func replayed(l Letter, m mapping, receipts []engine.Receipt) Replayed {
	d := decideAll(delivery{mapping: m}, receipts)
	out := Replayed{Letter: l, Fate: d.fate.name(), Reason: d.reason, Stays: d.deadLetter() || d.fate == fateRetried}
	for _, r := range receipts {
		if r.InstanceID != uuid.Nil && decide(r).fate == d.fate {
			out.InstanceID, out.SignalID = r.InstanceID, r.SignalID
			break
		}
	}
	return out
}

// name is what a message is said to be whose settlement is this.
func (f fate) name() string {
	switch f {
	case fateDeadLettered:
		return FateDeadLettered
	case fateRetried:
		return FatePending
	}
	return string(f)
}

// mapAgain is what the route of a dead letter makes of its message now.
func (r *Replayer) mapAgain(l Letter) mapping {
	if len(l.Cut) > 0 {
		return mapping{reason: fmt.Sprintf("it cannot be replayed: its %s had to be cut to fit into a message, so it is not what was sent; message %d of %s has it whole, as long as the stream does", strings.Join(l.Cut, " and "), l.StreamSeq, l.Stream)}
	}
	if l.Stream == "" {
		return mapEffect(l)
	}
	rt := r.mapper.route(l.Route)
	if rt == nil {
		return mapping{reason: fmt.Sprintf("it cannot be replayed: there is no route %q in the configuration of the bridge", l.Route)}
	}
	if why := rt.passesBy(Message{Subject: l.Subject, Stream: l.Stream}); why != "" {
		return mapping{reason: fmt.Sprintf("it cannot be replayed: the route %s now %s", l.Route, why)}
	}
	if l.Origin.IsZero() {
		return mapping{reason: "it cannot be replayed: it does not say where its message stood first, so what was taken in could not be told from it"}
	}
	return rt.mapMessage(&message{
		subject: l.Subject, headers: unquarantine(l), body: l.Data, stream: l.Stream, created: l.Origin.Created, sequence: l.StreamSeq,
		stored: l.Stored, deliveries: l.Deliveries, seenBefore: true, origin: l.Origin,
	})
}

// route by its name; nil: there is none.
func (m *Mapper) route(name string) *route {
	for _, rt := range m.routes() {
		if rt.Name == name {
			return rt
		}
	}
	return nil
}

// unquarantine gives a message back the headers that it came with.
func unquarantine(l Letter) map[string][]string {
	h := make(map[string][]string, len(l.Headers)+1)
	for name, values := range l.Headers {
		if own, ok := strings.CutPrefix(name, originalPrefix); ok {
			name = "Nats-" + own
		}
		h[name] = values
	}
	if l.MsgID != "" {
		h[subjects.HeaderMsgID] = []string{l.MsgID}
	}
	return h
}

// mapEffect makes the signal of a step again that had no target. Without a dedup key of its own it has the letter's, so that a second
// replay is a duplicate.
func mapEffect(l Letter) mapping {
	if l.Subject == subjects.EventEffect {
		return mapEventEffect(l)
	}
	name, ok := strings.CutPrefix(l.Subject, "signal.")
	header := func(name string) string { return nats.Header(l.Headers).Get(name) }
	to := engine.ByKey(header(subjects.HeaderProject), header(subjects.HeaderCorrelationKey))
	if id, err := uuid.Parse(header(subjects.HeaderInstanceID)); err == nil {
		to = engine.ByID(id).In(header(subjects.HeaderProject))
	}
	if !ok || to.Key() == "" && to.ID() == uuid.Nil {
		return mapping{reason: "it cannot be replayed: it came from no stream, and does not say whom it was for"}
	}
	in := engine.Intake{To: to, Name: name, Payload: json.RawMessage(l.Data), DedupKey: header(subjects.HeaderDedupKey), OnMissing: engine.MissingHold, Message: &engine.Message{Route: l.Route}}
	if in.DedupKey == "" {
		in.DedupKey = l.ID
	}
	if to.ID() != uuid.Nil {
		in.OnMissing, in.Message = engine.MissingReject, nil
	}
	return mapping{intakes: []engine.Intake{in}}
}

// mapEventEffect makes the event of a step again that no trigger took.
func mapEventEffect(l Letter) mapping {
	header := func(name string) string { return nats.Header(l.Headers).Get(name) }
	in := engine.Intake{
		To: engine.ByKey(header(subjects.HeaderProject), ""), Event: header(subjects.HeaderEventKey), Payload: json.RawMessage(l.Data), DedupKey: l.ID,
		OnMissing: engine.MissingHold, Message: &engine.Message{Route: l.Route},
	}
	if in.Event == "" {
		return mapping{reason: "it cannot be replayed: it came from no stream, and does not say which trigger it was for"}
	}
	return mapping{intakes: []engine.Intake{in}}
}
