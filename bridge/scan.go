package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// maxScan is how many messages are looked through for one: a stream has no index of headers.
const maxScan = 50_000

// scan reads the headers of messages in the order of the stream until see says that it is enough. complete says that it came to the end
// of the stream.
func scan(ctx context.Context, js jetstream.JetStream, stream string, cfg jetstream.OrderedConsumerConfig, see func(m jetstream.Msg, seq uint64) (enough bool)) (complete bool, err error) {
	cfg.HeadersOnly = true
	return readOn(ctx, js, stream, cfg, maxScan, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool { return see(m, meta.Sequence.Stream) })
}

// readOn is scan for whole messages, at most so many.
func readOn(ctx context.Context, js jetstream.JetStream, stream string, cfg jetstream.OrderedConsumerConfig, most int, see func(m jetstream.Msg, meta *jetstream.MsgMetadata) (enough bool)) (complete bool, err error) {
	cfg.InactiveThreshold = 10 * time.Second
	c, err := js.OrderedConsumer(ctx, stream, cfg)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", stream, err)
	}
	info, err := c.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", stream, err)
	}
	if info.NumPending == 0 && info.Delivered.Consumer == 0 {
		return true, nil
	}
	messages, err := c.Messages()
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", stream, err)
	}
	defer messages.Stop()
	for range most {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return false, fmt.Errorf("stream %s: %w", stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, fmt.Errorf("stream %s: %w", stream, err)
		}
		if see(m, meta) {
			return false, nil
		}
		if meta.NumPending == 0 {
			return true, nil
		}
	}
	return false, nil
}

// findMsgID returns the sequence of the latest message with a Nats-Msg-Id among the last ones of a stream; 0: not among them. complete says that
// these were all.
func findMsgID(ctx context.Context, js jetstream.JetStream, stream, id string) (found uint64, complete bool, err error) {
	s, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrInvalidStreamName) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("stream %s: %w", stream, err)
	}
	state := s.CachedInfo().State
	from := max(1, state.FirstSeq)
	if state.LastSeq >= maxScan {
		from = max(from, state.LastSeq-maxScan+1)
	}
	_, err = scan(ctx, js, stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from}, func(m jetstream.Msg, seq uint64) bool {
		if m.Headers().Get(jetstream.MsgIDHeader) == id {
			found = seq
		}
		return false
	})
	return found, from <= max(1, state.FirstSeq), err
}
