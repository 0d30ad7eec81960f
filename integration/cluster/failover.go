package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Failover kills the primary and promotes its standby, which takes writes when this returns. The standby had all that was committed, as the
// primary waited for it. Until the fault is healed the promoted one commits alone; healing makes the killed one its standby, with a copy
// of its data, and returns when commits wait for it again.
func (c *Cluster) Failover(ctx context.Context) (*Fault, error) {
	c.failover.Lock()
	defer c.failover.Unlock()
	old, standby := c.Primary(), c.Standby()
	if standby == nil {
		return nil, errors.New("failover: there is no standby")
	}
	f := &Fault{Name: "failover from " + old.name + " to " + standby.name}
	if err := standby.take(f.Name); err != nil {
		return nil, err
	}
	defer standby.release() // once promoted it may be hurt as any other
	if err := old.take(f.Name); err != nil {
		return nil, err
	}
	if err := c.promote(ctx, old, standby); err != nil {
		if old.Running() {
			old.release()
		}
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	f.heal = func(ctx context.Context) error { return c.rejoin(ctx, old) }
	return f, nil
}

func (c *Cluster) promote(ctx context.Context, old, standby *Member) error {
	if err := c.poll(ctx, standby, c.inSync); err != nil {
		return err
	}
	// Said before, or its first commit would wait for a standby of its own.
	if err := c.tell(ctx, standby, `alter system set synchronous_standby_names = ''`, `select pg_reload_conf()`); err != nil {
		return err
	}
	old.set(stopped)
	if err := c.backend.kill(ctx, old); err != nil {
		return err
	}
	var promoted bool
	if err := c.query(ctx, standby, `select pg_promote(true, 60)`, &promoted); err != nil {
		return err
	}
	if !promoted {
		return fmt.Errorf("%s was not promoted within a minute", standby)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.primary = standby
	return nil
}

// rejoin makes a Postgres that was the primary the standby of the one that is.
func (c *Cluster) rejoin(ctx context.Context, old *Member) error {
	if !old.Running() { // else this was tried before
		if err := c.backend.forget(ctx, old); err != nil {
			return err
		}
	}
	if err := c.run(ctx, old); err != nil {
		return err
	}
	if err := c.synchronous(ctx); err != nil {
		return err
	}
	old.release()
	return nil
}

// Fill makes a stream refuse what is published to it, as one does whose disk or bound is full. Healing gives it back the bounds that it had.
func (c *Cluster) Fill(ctx context.Context, stream string) (*Fault, error) {
	f := &Fault{Name: "fill " + stream}
	var had *jetstream.StreamConfig
	err := c.changeStream(ctx, stream, func(cfg *jetstream.StreamConfig, state jetstream.StreamState) error {
		if had == nil { // the answer to a change that was made may be lost
			before := *cfg
			had = &before
		}
		// No message fits any more, and none of those that are there is discarded for it.
		cfg.Discard, cfg.MaxBytes = jetstream.DiscardNew, max(1, int64(state.Bytes))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	f.heal = func(ctx context.Context) error {
		return c.changeStream(ctx, stream, func(cfg *jetstream.StreamConfig, _ jetstream.StreamState) error {
			cfg.Discard, cfg.MaxBytes = had.Discard, had.MaxBytes
			return nil
		})
	}
	return f, nil
}

// changeStream gives a stream another configuration, as soon as it has a leader to ask.
func (c *Cluster) changeStream(ctx context.Context, name string, change func(*jetstream.StreamConfig, jetstream.StreamState) error) error {
	return outlast(ctx, electionTimeout, func(ctx context.Context) error {
		return c.withJetStream(func(js jetstream.JetStream) error {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			if err := change(&cfg, s.CachedInfo().State); err != nil {
				return err
			}
			_, err = js.UpdateStream(ctx, cfg)
			return err
		})
	})
}
