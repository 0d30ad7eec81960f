package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Witness knows what was taken in; an [engine.Client] is one.
type Witness interface {
	Prober
	// Expiring says which intakes were held until their time was over, and are on their way to the dead letters.
	Expiring(ctx context.Context, batch []engine.Intake) ([]bool, error)
	// Vanished says of which records the signal is neither in its live instance's inbox nor consumed.
	Vanished(ctx context.Context, records []engine.Record) ([]bool, error)
	// Trails says what is known of places in streams, where there is no record of an intake.
	Trails(ctx context.Context, origins []engine.Origin) ([]engine.Trail, error)
}

// Auditor proves that each message that a route has acked has one fate. It believes no count: it reads the stream, the dead letters and
// the database. It changes nothing. Make it with [NewAuditor].
type Auditor struct {
	js      jetstream.JetStream
	space   subjects.Space
	mapper  *Mapper
	witness Witness
	origins *origins
	kept    time.Duration
}

// NewAuditor audits these routes. kept is how long records outlive what they are of.
func NewAuditor(js jetstream.JetStream, space subjects.Space, mapper *Mapper, witness Witness, kept time.Duration) *Auditor {
	return &Auditor{js: js, space: space, mapper: mapper, witness: witness, origins: newOrigins(js), kept: kept}
}

// AuditRequest says what is audited.
type AuditRequest struct {
	Route        string
	Since, Until time.Time // when the stream stored it; zero: from its first message on, up to the last
	// Progress is told after each batch, and may be nil.
	Progress func(Audit)
	// Found is told each message without a fate, or with two, as it is found.
	Found func(Finding)
}

// Audit is what was found.
type Audit struct {
	Route, Stream string
	First, Last   uint64 // sequences of the route that were read; 0: none
	Floor         uint64 // up to here the consumer has acked all
	Messages      int
	Fates         map[string]int // those of messages, and those that only an audit knows
	Pending       uint64         // messages behind the floor
	Deleted       uint64         // sequences up to the floor that the stream does not have any more, of whatever subject
}

// Fates that only an audit knows.
const (
	FateLost  = "lost"  // acked, and nothing shows why
	FateTwice = "twice" // taken in, and a dead letter too
	// FateLetterDropped: refused, and its dead letter was deleted on purpose, by [Dropper].
	FateLetterDropped = "letter-dropped"
	// FateLetterGone: refused by the route as it is, but the dead letter is not there any more, and dead letters have been removed.
	FateLetterGone = "letter-gone"
)

// Finding is a message that speaks against the bridge.
type Finding struct {
	Seq     uint64
	Subject string
	Fate    string // FateLost or FateTwice
	Reason  string
}

// OK says that every message has one fate.
func (a Audit) OK() bool { return a.Fates[FateLost]+a.Fates[FateTwice] == 0 }

// auditBatch is how many messages are probed in one statement, if they have one target each.
const auditBatch = 250

// audit is one that runs.
type audit struct {
	*Auditor
	AuditRequest
	rt      *route
	stream  jetstream.Stream
	result  Audit
	letters seqSet // sequences that have a dead letter,
	upTo    uint64 // read up to here in their stream,
	removed bool   // of which some have been removed
	doubts  []probed
}

// Run reads the messages of a route. The error is of what could not be asked, not of what was found.
func (a *Auditor) Run(ctx context.Context, r AuditRequest) (Audit, error) {
	run := &audit{Auditor: a, AuditRequest: r, rt: a.mapper.route(r.Route), letters: seqSet{}}
	if run.rt == nil {
		return Audit{}, fmt.Errorf("there is no route %q in the configuration", r.Route)
	}
	run.result = Audit{Route: r.Route, Stream: run.rt.Stream, Fates: map[string]int{}}
	err := run.do(ctx)
	return run.result, err
}

func (a *audit) do(ctx context.Context) (err error) {
	if a.stream, err = a.js.Stream(ctx, a.rt.Stream); err != nil {
		return fmt.Errorf("stream %s: %w", a.rt.Stream, err)
	}
	if keeps := a.stream.CachedInfo().Config.Retention; keeps != jetstream.LimitsPolicy {
		return fmt.Errorf("stream %s: its retention is %s, so it drops what is acked, and there is nothing to compare with", a.rt.Stream, keeps)
	}
	// What is acked by now has its record, and its dead letter, by the time that these are read.
	if err := a.readFloor(ctx); err != nil {
		return err
	}
	if err := a.readLetters(ctx); err != nil {
		return err
	}
	if err := a.readStream(ctx); err != nil {
		return err
	}
	return a.settleDoubts(ctx)
}

func (a *audit) readFloor(ctx context.Context) error {
	name := a.rt.durable
	if a.rt.Existing != "" {
		name = a.rt.Existing
	}
	c, err := a.stream.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("consumer %s: there is none: no bridge has run the route", name)
	}
	if err != nil {
		return fmt.Errorf("consumer %s: %w", name, err)
	}
	info := c.CachedInfo()
	a.result.Floor, a.result.Pending = info.AckFloor.Stream, info.NumPending+uint64(info.NumAckPending)
	if info.NumAckPending == 0 {
		a.result.Floor = info.Delivered.Stream
	}
	state := a.stream.CachedInfo().State
	a.result.Deleted = max(state.FirstSeq, 1) - 1 + uint64(state.NumDeleted)
	return nil
}

// readLetters reads the dead letters that there are more of than the last time.
func (a *audit) readLetters(ctx context.Context) error {
	s, err := a.js.Stream(ctx, a.space.DeadLettersStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", a.space.DeadLettersStream(), err)
	}
	state := s.CachedInfo().State
	a.removed = state.FirstSeq > 1 || state.NumDeleted > 0
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{a.space.DeadLetter(a.Route)}, HeadersOnly: true,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: a.upTo + 1,
	}
	return forward(ctx, s, cfg, state.LastSeq, func(m jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
		a.upTo = meta.Sequence.Stream
		h := m.Headers()
		seq, err := strconv.ParseUint(h.Get(subjects.HeaderSeq), 10, 64)
		if err == nil && h.Get(subjects.HeaderStream) == a.rt.Stream && a.ofThisStream(h.Get(subjects.HeaderOrigin)) {
			a.letters.add(seq)
		}
		return false, nil
	})
}

// ofThisStream says whether a dead letter may be of this incarnation of the stream, and not of one that was deleted.
func (a *audit) ofThisStream(origin string) bool {
	o, ok := originOf(a.Route, origin)
	return !ok || a.rt.Existing != "" || o.Stream != a.rt.Stream || o.Created.Equal(a.stream.CachedInfo().Created)
}

func (a *audit) readStream(ctx context.Context) error {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: a.rt.Subjects}
	if !a.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &a.Since
	}
	var batch []*message
	bytes := 0
	flush := func() error {
		err := a.judge(ctx, batch)
		batch, bytes = batch[:0], 0
		return err
	}
	err := forward(ctx, a.stream, cfg, a.result.Floor, func(m jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
		if !a.Until.IsZero() && meta.Timestamp.After(a.Until) {
			return true, nil
		}
		msg, err := a.message(ctx, m, meta)
		if err != nil {
			return false, err
		}
		if batch, bytes = append(batch, msg), bytes+len(msg.body); len(batch) < auditBatch && bytes < maxBatchBytes {
			return false, nil
		}
		return false, flush()
	})
	return errors.Join(err, flush())
}

// message as the route read it.
func (a *audit) message(ctx context.Context, raw jetstream.Msg, meta *jetstream.MsgMetadata) (m *message, err error) {
	m = &message{
		subject: raw.Subject(), headers: raw.Headers(), body: raw.Data(), stream: a.rt.Stream, created: a.stream.CachedInfo().Created,
		sequence: meta.Sequence.Stream, stored: meta.Timestamp,
	}
	if a.rt.Existing != "" { // see locate
		m.created = m.stored
		m.origin = engine.Origin{Stream: m.stream, Created: m.stored, Sequence: m.sequence}
		return m, nil
	}
	if mirror := a.stream.CachedInfo().Config.Mirror; mirror != nil {
		m.mirrors = mirror.Name
	}
	m.origin, err = a.origins.of(ctx, m)
	return m, err
}

// judge finds the fates of a batch.
func (a *audit) judge(ctx context.Context, batch []*message) error {
	if len(batch) == 0 {
		return nil
	}
	all, err := probe(ctx, a.rt, a.witness, batch)
	if err != nil {
		return err
	}
	var records []engine.Record
	for _, p := range all {
		records = append(records, p.records...)
	}
	vanished, err := a.witness.Vanished(ctx, records)
	if err != nil {
		return err
	}
	for _, p := range all {
		if a.result.First == 0 {
			a.result.First = p.sequence
		}
		a.result.Last = p.sequence
		a.result.Messages++
		n := len(p.records)
		if slices.Contains(vanished[:n], true) {
			a.count(p, FateLost, "it was delivered, and its signal is neither in the inbox of its instance, which lives, nor consumed by it")
			vanished = vanished[n:]
			continue
		}
		vanished = vanished[n:]
		if fate, reason := a.fate(p); fate == FateLost || fate == FateLetterGone {
			p.body, p.headers = nil, nil
			a.doubts = append(a.doubts, p)
		} else {
			a.count(p, fate, reason)
		}
	}
	if len(a.doubts) >= auditBatch {
		if err := a.settleDoubts(ctx); err != nil {
			return err
		}
	}
	if a.Progress != nil {
		a.Progress(a.result)
	}
	return nil
}

func (a *audit) count(p probed, fate, reason string) {
	a.result.Fates[fate]++
	if (fate == FateLost || fate == FateTwice) && a.Found != nil {
		a.Found(Finding{Seq: p.sequence, Subject: p.subject, Fate: fate, Reason: reason})
	}
}

// fate of a message that was acked, from what is known of it.
func (a *audit) fate(p probed) (name, reason string) {
	letter := a.letters.has(p.sequence)
	worst, own := "", 0
	for _, r := range p.records {
		switch r.Result {
		case engine.Delivered, engine.Started, engine.Held:
			own++
		}
		if r.Result == "" {
			worst = ""
			break
		}
		if worst == "" || severity(fate(r.Result)) > severity(fate(worst)) {
			worst = string(r.Result)
		}
	}
	switch {
	case letter && len(p.records) > 0 && own == len(p.records):
		return FateTwice, "it was taken in, and is a dead letter too: dlq replay finds the duplicate and removes the letter"
	case letter && worst == FateConflict:
		return FateConflict, ""
	case letter:
		return FateDeadLettered, ""
	case p.filtered:
		return FateFiltered, ""
	case worst != "" && worst != FateConflict:
		return worst, ""
	}
	return a.unexplained(p, worst)
}

// unexplained is the fate of a message that has neither a record nor a dead letter.
func (a *audit) unexplained(p probed, worst string) (name, reason string) {
	refuses := p.reason
	if worst == FateConflict {
		refuses = "its dedup key was taken in before with another name or body"
	}
	for _, r := range p.records {
		switch {
		case r.Result != "":
		case r.Would == engine.Dropped:
			return FateDropped, ""
		case r.Would == engine.NoTarget || r.Would == engine.Refused:
			refuses = "nobody has its key, or whoever had it has ended"
		}
	}
	switch {
	case a.rt.mayDrop() && refuses == "" && !thereBefore(p):
		return FateDropped, ""
	case time.Since(p.stored) > a.kept:
		return FateUnknown, ""
	case refuses != "" && a.removed:
		return FateLetterGone, ""
	case refuses != "":
		return FateLost, "there is no dead letter of it, and none has been removed, but the route refuses it: " + refuses
	}
	return FateLost, "it was acked, and neither an inbox, the hold, a start nor a dead letter has it"
}

// thereBefore says that an instance that the message is for was there when it came, by clocks that may differ by a minute: it was not
// dropped for want of one.
func thereBefore(p probed) bool {
	for _, r := range p.records {
		if sec, nsec := r.Target.Time().UnixTime(); r.Target.Version() == 7 && time.Unix(sec, nsec).Before(p.stored.Add(-time.Minute)) {
			return true
		}
	}
	return false
}

// settleDoubts looks once more for what has neither a record nor a dead letter: it may have moved from one place to the other while these
// were read, or be on its way.
func (a *audit) settleDoubts(ctx context.Context) error {
	doubts := a.doubts
	if a.doubts = nil; len(doubts) == 0 {
		return nil
	}
	// In the order in which an expired hold moves: the hold, the outbox, the dead letters.
	var intakes []engine.Intake
	for _, p := range doubts {
		intakes = append(intakes, p.intakes...)
	}
	records, err := a.witness.LookAll(ctx, intakes)
	if err != nil {
		return err
	}
	expiring, err := a.witness.Expiring(ctx, intakes)
	if err != nil {
		return err
	}
	if err := a.readLetters(ctx); err != nil {
		return err
	}
	origins := make([]engine.Origin, len(doubts))
	for i, p := range doubts {
		origins[i] = p.origin
		origins[i].Route = a.Route
	}
	trails, err := a.witness.Trails(ctx, origins)
	if err != nil {
		return err
	}
	for i, p := range doubts {
		n := len(p.intakes)
		p.records = records[:n]
		fate, reason := a.fate(p)
		switch {
		case fate != FateLost && fate != FateLetterGone:
		case slices.Contains(expiring[:n], true):
			fate, reason = FateDeadLettered, ""
		case !trails[i].DroppedAt.IsZero():
			fate, reason = FateLetterDropped, ""
		}
		records, expiring = records[n:], expiring[n:]
		a.count(p, fate, reason)
	}
	return nil
}
