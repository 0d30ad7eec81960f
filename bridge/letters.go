package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Letter is a dead letter: a message that can never be taken in, and why.
type Letter struct {
	Seq        uint64 // in the stream of the dead letters,
	ID         string // and its own Nats-Msg-Id there
	Route      string
	Reason     string
	Stream     string // where the message stood,
	StreamSeq  uint64 // and its sequence there; 0: it came from no stream
	Subject    string
	MsgID      string // its Nats-Msg-Id
	Deliveries uint64
	At         time.Time
	Origin     engine.Origin       // where the message stood first; zero: it came from no stream
	Stored     time.Time           // by its stream; zero: not known
	Cut        []string            // what had to be left out: headers, body
	Headers    map[string][]string // of the message, without those above; NATS's own begin with Pointsman-Original-
	Data       []byte
}

// Letters reads the dead letters. Make it with [NewLetters].
type Letters struct {
	js    jetstream.JetStream
	space subjects.Space
}

// NewLetters reads the dead letters of the bridges with these subjects.
func NewLetters(js jetstream.JetStream, space subjects.Space) *Letters {
	return &Letters{js: js, space: space}
}

// ErrNoLetter: there is no dead letter with this sequence.
var ErrNoLetter = errors.New("there is no dead letter with this sequence")

// Get returns a dead letter by its sequence. The error is [ErrNoLetter] where there is none.
func (l *Letters) Get(ctx context.Context, seq uint64) (Letter, error) {
	s, err := l.stream(ctx)
	if err != nil {
		return Letter{}, err
	}
	if s == nil || seq == 0 {
		return Letter{}, ErrNoLetter
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Letter{}, ErrNoLetter
	}
	if err != nil {
		return Letter{}, fmt.Errorf("dead letter %d: %w", seq, err)
	}
	return l.letter(m.Subject, m.Header, m.Data, m.Sequence, m.Time), nil
}

// maxLetterWindows bounds the requests of one page. Windows double, so that this many reach back further than any stream is long.
const maxLetterWindows = 40

// List returns up to limit dead letters, of one route or of all, with a sequence below before (0: all), the latest first. The next page
// is before next; 0 says that there is none.
func (l *Letters) List(ctx context.Context, route string, before uint64, limit int) (page []Letter, next uint64, err error) {
	s, err := l.stream(ctx)
	if err != nil || s == nil {
		return nil, 0, err
	}
	filter := l.space.DeadLetterFilter()
	if route != "" {
		filter = l.space.DeadLetter(route)
	}
	state := s.CachedInfo().State
	if before == 0 || before > state.LastSeq {
		before = state.LastSeq + 1
	}
	// The server can look for the next message of a subject, not for the one before: each window is read forwards.
	width := uint64(limit)
	for range maxLetterWindows {
		if before <= state.FirstSeq || len(page) >= limit {
			break
		}
		from := max(state.FirstSeq, before-min(before, width))
		window, err := l.window(ctx, s, filter, from, before)
		if err != nil {
			return nil, 0, err
		}
		for i := len(window) - 1; i >= 0 && len(page) < limit; i-- {
			page = append(page, window[i])
		}
		before = from
		width *= 2
	}
	switch {
	case len(page) == limit:
		next = page[limit-1].Seq
	default:
		next = before
	}
	if next <= state.FirstSeq {
		next = 0
	}
	return page, next, nil
}

// window reads the letters of a subject from one sequence until before another.
func (l *Letters) window(ctx context.Context, s jetstream.Stream, filter string, from, before uint64) (letters []Letter, err error) {
	for from < before {
		m, err := s.GetMsg(ctx, max(1, from), jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		if m.Sequence >= before {
			break
		}
		letters = append(letters, l.letter(m.Subject, m.Header, m.Data, m.Sequence, m.Time))
		from = max(from, m.Sequence) + 1 // a letter by others may have a header that poses as its sequence
	}
	return letters, nil
}

// remove deletes a dead letter for good. One that is not there is no error: somebody else dropped or replayed it.
func (l *Letters) remove(ctx context.Context, seq uint64) error {
	s, err := l.stream(ctx)
	if err != nil || s == nil {
		return err
	}
	if err := s.DeleteMsg(ctx, seq); err != nil {
		if _, there := s.GetMsg(ctx, seq); errors.Is(there, jetstream.ErrMsgNotFound) {
			return nil
		}
		return fmt.Errorf("delete dead letter %d: %w", seq, err)
	}
	return nil
}

// stream of the dead letters; nil where there is none yet.
func (l *Letters) stream(ctx context.Context) (jetstream.Stream, error) {
	s, err := l.js.Stream(ctx, l.space.DeadLettersStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", l.space.DeadLettersStream(), err)
	}
	return s, nil
}

// lettersOwn are the headers that a dead letter has beside its message's.
var lettersOwn = []string{
	subjects.HeaderMsgID, subjects.HeaderReason, subjects.HeaderStream, subjects.HeaderSeq, subjects.HeaderSubject, subjects.HeaderDeliveries, subjects.HeaderOriginalMsgID,
	subjects.HeaderOrigin, subjects.HeaderTime, subjects.HeaderCut,
}

func (l *Letters) letter(subject string, h nats.Header, data []byte, seq uint64, at time.Time) Letter {
	out := Letter{
		Seq: seq, ID: h.Get(subjects.HeaderMsgID), Route: strings.TrimPrefix(subject, l.space.DeadLetter("")), Reason: h.Get(subjects.HeaderReason), Stream: h.Get(subjects.HeaderStream),
		Subject: h.Get(subjects.HeaderSubject), MsgID: h.Get(subjects.HeaderOriginalMsgID), At: at, Headers: map[string][]string{}, Data: data,
	}
	out.StreamSeq, _ = strconv.ParseUint(h.Get(subjects.HeaderSeq), 10, 64)
	out.Deliveries, _ = strconv.ParseUint(h.Get(subjects.HeaderDeliveries), 10, 64)
	out.Stored, _ = time.Parse(time.RFC3339Nano, h.Get(subjects.HeaderTime))
	out.Origin, _ = originOf(out.Route, h.Get(subjects.HeaderOrigin))
	out.Cut = h.Values(subjects.HeaderCut)
	for name, values := range stored(h) {
		out.Headers[name] = values
	}
	for _, name := range lettersOwn {
		delete(out.Headers, name)
	}
	return out
}

// originOf reads the header of that name.
func originOf(route, text string) (engine.Origin, bool) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return engine.Origin{}, false
	}
	created, err1 := strconv.ParseInt(fields[1], 10, 64)
	seq, err2 := strconv.ParseUint(fields[2], 10, 64)
	return engine.Origin{Route: route, Stream: fields[0], Created: time.Unix(0, created), Sequence: seq}, err1 == nil && err2 == nil
}

// stored are the headers of a message without those that the server adds where a stream lets it be read directly.
func stored(h nats.Header) nats.Header {
	out := make(nats.Header, len(h))
	for name, values := range h {
		switch name {
		case jetstream.StreamHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, jetstream.SubjectHeader, jetstream.LastSequenceHeader:
		default:
			out[name] = values
		}
	}
	return out
}
