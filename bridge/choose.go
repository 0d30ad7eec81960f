package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// LetterChoice says which dead letters are meant; the zero value means all.
type LetterChoice struct {
	Route          string
	Since          time.Time // they were stored
	ReasonContains string
}

// matches what the stream cannot look for itself.
func (c LetterChoice) matches(l Letter) bool {
	return !l.At.Before(c.Since) && strings.Contains(l.Reason, c.ReasonContains)
}

// Bounds of one step through the dead letters: how many are looked at, and how many bytes those that are chosen may have.
const (
	maxLooked      = 500
	maxChosenBytes = 4 << 20
)

// Choose returns up to limit of the chosen dead letters with a sequence from one up to another, in the order in which they came. next is
// where the following step begins, 0 where there is none; a step may be short, even empty, and have one.
func (l *Letters) Choose(ctx context.Context, choice LetterChoice, from, to uint64, limit int) (chosen []Letter, next uint64, err error) {
	s, err := l.stream(ctx)
	if err != nil || s == nil {
		return nil, 0, err
	}
	filter := l.space.DeadLetterFilter()
	if choice.Route != "" {
		filter = l.space.DeadLetter(choice.Route)
	}
	from = max(from, 1, s.CachedInfo().State.FirstSeq)
	bytes := 0
	for looked := 0; from <= to; looked++ {
		if looked == maxLooked || len(chosen) == limit || bytes >= maxChosenBytes {
			return chosen, from, nil
		}
		m, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("dead letters: %w", err)
		}
		if m.Sequence > to {
			break
		}
		from = max(from, m.Sequence) + 1 // a letter by others may have a header that poses as its sequence
		if letter := l.letter(m.Subject, m.Header, m.Data, m.Sequence, m.Time); choice.matches(letter) {
			chosen, bytes = append(chosen, letter), bytes+len(m.Data)
		}
	}
	return chosen, 0, nil
}

// Range are the sequences of the dead letters that there are since a time: what a walk over them that begins now has to see, and not what
// it brings about itself. to is 0 where there are none.
func (l *Letters) Range(ctx context.Context, since time.Time) (from, to uint64, err error) {
	s, err := l.stream(ctx)
	if err != nil || s == nil {
		return 0, 0, err
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 {
		return 0, 0, nil
	}
	// Their times grow with their sequences.
	from, to = max(1, state.FirstSeq), state.LastSeq
	for low, high := from, to; !since.IsZero() && low <= high; {
		middle := low + (high-low)/2
		m, err := s.GetMsg(ctx, middle, jetstream.WithGetMsgSubject(l.space.DeadLetterFilter()))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // none from here on
			high = middle - 1
		case err != nil:
			return 0, 0, fmt.Errorf("dead letters: %w", err)
		case m.Time.Before(since):
			low = m.Sequence + 1
			from = low
		default:
			high = middle - 1
		}
	}
	return from, to, nil
}
