package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// forward reads the messages of a stream that a consumer selects, in their order and up to a sequence, until see says that it is enough.
// It holds a bounded number of them, and ends also where messages that were to come are purged.
func forward(ctx context.Context, s jetstream.Stream, cfg jetstream.OrderedConsumerConfig, to uint64, see func(m jetstream.Msg, meta *jetstream.MsgMetadata) (enough bool, err error)) error {
	name := s.CachedInfo().Config.Name
	cfg.InactiveThreshold = 10 * time.Second
	c, err := s.OrderedConsumer(ctx, cfg)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	if done, err := nothingLeft(ctx, c, 0); done || err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(128))
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	defer messages.Stop()
	last := uint64(0)
	for {
		m, err := messages.Next(jetstream.NextMaxWait(time.Second))
		if errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil {
			if done, err := nothingLeft(ctx, c, last); done || err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		if meta.Sequence.Stream > to {
			return nil
		}
		last = meta.Sequence.Stream
		if enough, err := see(m, meta); enough || err != nil {
			return err
		}
		if meta.NumPending == 0 || meta.Sequence.Stream == to {
			return nil
		}
	}
}

// nothingLeft says that the server has sent all that it has, and that the last of it is here.
func nothingLeft(ctx context.Context, c jetstream.Consumer, last uint64) (bool, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return false, err
	}
	return info.NumPending == 0 && (info.Delivered.Consumer == 0 || info.Delivered.Stream <= last), nil
}
