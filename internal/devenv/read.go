package devenv

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// How long the next message of a stream, which is there, may take: a server that is killed meanwhile sends no more.
const (
	pollPatience  = time.Second // it is read again a moment later
	auditPatience = 30 * time.Second
)

// read calls see for every message of a stream from a sequence on, and returns the sequence that comes next, also with an error.
func read(ctx context.Context, js jetstream.JetStream, stream string, from uint64, patience time.Duration, see func(m jetstream.Msg, meta *jetstream.MsgMetadata)) (next uint64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read stream %s: %w", stream, err)
		}
	}()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return from, err
	}
	last := s.CachedInfo().State.LastSeq
	if last < from {
		return from, nil
	}
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, InactiveThreshold: auditPatience,
	})
	if err != nil {
		return from, err
	}
	messages, err := c.Messages()
	if err != nil {
		return from, err
	}
	defer messages.Stop()
	for from <= last {
		m, err := messages.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			return from, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return from, err
		}
		see(m, meta)
		from = meta.Sequence.Stream + 1
		if meta.NumPending == 0 {
			break
		}
	}
	return from, nil
}

// lastSequence of a stream.
func lastSequence(ctx context.Context, js jetstream.JetStream, stream string) (uint64, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	return s.CachedInfo().State.LastSeq, nil
}

// outcome is the body of a terminal outcome.
type outcome struct {
	InstanceID     string          `json:"instance_id"`
	CorrelationKey string          `json:"correlation_key"`
	Status         string          `json:"status"`
	Reason         string          `json:"reason"`
	Result         json.RawMessage `json:"result"`
}

// outcomes are those that came for the orders of one traffic.
type outcomes struct {
	js     jetstream.JetStream
	stream string
	next   uint64
	of     map[string][]outcome // by correlation key; the keys are there from the beginning
	ended  int                  // keys that have one
}

// poll takes in what has come since.
func (o *outcomes) poll(ctx context.Context) (err error) {
	o.next, err = read(ctx, o.js, o.stream, o.next, pollPatience, func(m jetstream.Msg, _ *jetstream.MsgMetadata) {
		var out outcome
		if json.Unmarshal(m.Data(), &out) != nil {
			return // whose it is cannot be said, so that it will be missed
		}
		before, ours := o.of[out.CorrelationKey]
		if !ours {
			return
		}
		if len(before) == 0 {
			o.ended++
		}
		o.of[out.CorrelationKey] = append(before, out)
	})
	return err
}
