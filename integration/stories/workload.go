package stories

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/oracle"
)

// Workload plays stories, some at a time.
type Workload struct {
	Stories []Story
	Players int    // of each story at once
	Seed    uint64 // of what they do; how they are interleaved is the machines'
	Conn    *nats.Conn
	JS      jetstream.JetStream
	Account *oracle.Account

	played atomic.Int64
	names  sync.Map // of stories: the numbers that are used up
}

// Played is how many plays are over.
func (w *Workload) Played() int { return int(w.played.Load()) }

// Run plays until more is canceled, and returns when the plays that have begun are over. Those that are not over when ctx ends are its errors:
// something that should have happened has not.
func (w *Workload) Run(ctx, more context.Context) error {
	return w.each(func(s Story) error {
		for more.Err() == nil {
			if err := w.play(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// Some plays each story so many times.
func (w *Workload) Some(ctx context.Context, times int) error {
	var left sync.Map
	for _, s := range w.Stories {
		n := &atomic.Int64{}
		n.Store(int64(times))
		left.Store(s.Name(), n)
	}
	return w.each(func(s Story) error {
		n, _ := left.Load(s.Name())
		for n.(*atomic.Int64).Add(-1) >= 0 {
			if err := w.play(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// each has the players of each story do something.
func (w *Workload) each(do func(s Story) error) error {
	var all sync.WaitGroup
	errs := make(chan error, len(w.Stories)*w.Players)
	for _, s := range w.Stories {
		for range w.Players {
			all.Go(func() { errs <- do(s) })
		}
	}
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

func (w *Workload) play(ctx context.Context, s Story) error {
	p := w.player(s.Name())
	if err := s.Play(ctx, p); err != nil {
		return fmt.Errorf("play %s: %w", p.Key, err)
	}
	w.played.Add(1)
	return nil
}

// player of the next play of a story. What it does is the same whenever the seed is.
func (w *Workload) player(story string) *Player {
	used, _ := w.names.LoadOrStore(story, &atomic.Int64{})
	n := used.(*atomic.Int64).Add(1)
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, story, n)
	return &Player{
		Conn: w.Conn, JS: w.JS, Account: w.Account, Rand: rand.New(rand.NewPCG(w.Seed, h.Sum64())),
		Key: fmt.Sprintf("%s-%d", story, n), Token: strconv.FormatInt(n, 10),
	}
}

// Probe publishes one probe, without waiting for what comes of it, and returns its event.
func (w *Workload) Probe(ctx context.Context) (event string, err error) {
	p := w.player(probe{}.Name())
	err = probe{}.send(ctx, p)
	return p.Key + "/1-", err
}
