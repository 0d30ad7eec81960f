package devenv

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// audit finds out what became of a traffic, from what is stored and from nothing that was counted on the way: the streams have what was
// published, the ledger and the hold what was taken in and from which place, the stream of dead letters the rest. A message that was
// redelivered, by a bridge that was killed, has one fate like any other.
type audit struct {
	js     jetstream.JetStream
	space  subjects.Space
	mapper *bridge.Mapper
	client *engine.Client
	from   map[string]uint64 // the first sequence of the traffic in each stream

	letters map[place]string // reasons
	stored  []*message
}

// place of a message in a stream.
type place struct {
	stream string
	seq    uint64
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.stream, p.seq) }

// message is a copy of an event that a stream has.
type message struct {
	place
	copyID string
	event  int
	as     bridge.Message
	fate   string
}

// fateTwice is none that a message may have: it is a dead letter, and taken in as well.
const fateTwice = "dead letter and taken in"

// run finds the fate of all messages of the traffic.
func (a *audit) run(ctx context.Context, streams []string) error {
	if err := a.readLetters(ctx); err != nil {
		return err
	}
	for _, stream := range streams {
		if err := a.readStream(ctx, stream); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(auditors)
	for _, m := range a.stored {
		group.Go(func() (err error) {
			m.fate, err = a.fate(ctx, m)
			return err
		})
	}
	return group.Wait()
}

const auditors = 8

func (a *audit) readLetters(ctx context.Context) error {
	a.letters = map[place]string{}
	stream := a.space.DeadLettersStream()
	_, err := read(ctx, a.js, stream, a.from[stream], auditPatience, func(m jetstream.Msg, _ *jetstream.MsgMetadata) {
		h := m.Headers()
		seq, err := strconv.ParseUint(h.Get(subjects.HeaderSeq), 10, 64)
		if err == nil {
			a.letters[place{h.Get(subjects.HeaderStream), seq}] = h.Get(subjects.HeaderReason)
		}
	})
	return err
}

func (a *audit) readStream(ctx context.Context, stream string) error {
	s, err := a.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	created := s.CachedInfo().Created
	_, err = read(ctx, a.js, stream, a.from[stream], auditPatience, func(m jetstream.Msg, meta *jetstream.MsgMetadata) {
		id := m.Headers().Get(headerCopy)
		event, ours := eventOf(id)
		if !ours {
			return
		}
		a.stored = append(a.stored, &message{place: place{stream, meta.Sequence.Stream}, copyID: id, event: event, as: bridge.Message{
			Subject: m.Subject(), Headers: m.Headers(), Data: m.Data(), Stream: stream, Created: created, Sequence: meta.Sequence.Stream, Stored: meta.Timestamp,
		}})
	})
	return err
}

// fate of a message that its route has acked.
func (a *audit) fate(ctx context.Context, m *message) (string, error) {
	mapping, ok := a.taken(m)
	if !ok {
		return bridge.FateUnknown, nil
	}
	var record engine.Record
	if len(mapping.Intakes) > 0 {
		var err error
		if record, err = a.client.Look(ctx, mapping.Intakes[0]); err != nil {
			return "", err
		}
	}
	own := record.Result == engine.Delivered || record.Result == engine.Started || record.Result == engine.Held
	reason, dead := a.letters[m.place]
	switch {
	case dead && own:
		return fateTwice, nil
	case dead && strings.HasPrefix(reason, "conflict:"):
		return bridge.FateConflict, nil
	case dead:
		return bridge.FateDeadLettered, nil
	case mapping.Filtered:
		return bridge.FateFiltered, nil
	case own || record.Result == engine.Duplicate:
		return string(record.Result), nil
	case record.Result == "" && record.Would == engine.Dropped:
		return bridge.FateDropped, nil
	default: // a conflict without a dead letter is lost as well
		return bridge.FateUnknown, nil
	}
}

// taken is what the route that reads a message makes of it.
func (a *audit) taken(m *message) (bridge.Mapping, bool) {
	for _, mapping := range a.mapper.Map(m.as) {
		if mapping.Taken {
			return mapping, true
		}
	}
	return bridge.Mapping{}, false
}

// instances of the traffic, by correlation key.
func (a *audit) instances(ctx context.Context, prefix string) (map[string]engine.Instance, error) {
	found := map[string]engine.Instance{}
	before := uuid.Nil
	for {
		page, next, err := a.client.List(ctx, engine.Filter{CorrelationPrefix: prefix}, before, 500)
		if err != nil {
			return nil, err
		}
		for _, in := range page {
			found[in.CorrelationKey] = in
		}
		if before = next; next == uuid.Nil {
			return found, nil
		}
	}
}
