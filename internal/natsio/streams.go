package natsio

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/subjects"
)

// Windows in which a stream drops a message whose Nats-Msg-Id it has seen.
const (
	dedupWindow = 2 * time.Minute
	// A dead letter is written again until its message is acked, which an outage may delay; and there are few.
	deadLetterWindow = time.Hour
)

// EnsureStreams creates the streams of pointsman that are absent, on files and without limits: how much to keep is the operator's choice.
// A stream that exists is left as it is. It may be called by several processes at once.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, space subjects.Space, replicas int) error {
	for _, s := range []struct {
		name, filter string
		window       time.Duration
	}{
		{space.SignalsStream(), space.SignalFilter(), dedupWindow},
		{space.OutcomesStream(), space.OutcomeFilter(), dedupWindow},
		{space.DeadLettersStream(), space.DeadLetterFilter(), deadLetterWindow},
	} {
		err := ensure(ctx, js, jetstream.StreamConfig{
			Name:        s.name,
			Subjects:    []string{s.filter},
			Storage:     jetstream.FileStorage,
			Replicas:    replicas,
			Duplicates:  s.window,
			AllowDirect: true,
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.name, err)
		}
	}
	return nil
}

func ensure(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	_, err := js.Stream(ctx, cfg.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err = js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another process was faster
	}
	return err
}
