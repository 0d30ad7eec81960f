package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Fault is something that is wrong with a cluster, from the return of the method that made it until Heal.
type Fault struct {
	// Name says what and where: "kill bridge1".
	Name string

	mu   sync.Mutex
	heal func(ctx context.Context) error // nil when it is healed
}

func (f *Fault) String() string { return f.Name }

// Heal ends the fault, and returns when what was hurt answers again, whatever other faults leave it to answer. That it takes part again, and
// that others have noticed, is what [Cluster.Ready] waits for. Healing again does nothing; one that returned an error can be tried again.
func (f *Fault) Heal(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heal == nil {
		return nil
	}
	if err := f.heal(ctx); err != nil {
		return fmt.Errorf("heal %q: %w", f.Name, err)
	}
	f.heal = nil
	return nil
}

// Kill is kill -9 of a member, with all its processes. Healing starts it again on the data that it had.
func (c *Cluster) Kill(ctx context.Context, m *Member) (*Fault, error) {
	f := &Fault{Name: "kill " + m.name}
	if err := m.take(f.Name); err != nil {
		return nil, err
	}
	m.set(stopped)
	if err := c.backend.kill(ctx, m); err != nil {
		m.release()
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	f.heal = func(ctx context.Context) error { return c.revive(ctx, m) }
	return f, nil
}

// revive starts a member again that does not run, and ends its fault.
func (c *Cluster) revive(ctx context.Context, m *Member) error {
	if err := c.run(ctx, m); err != nil {
		return err
	}
	m.release()
	return nil
}

// Pause stops a member with all its processes, as SIGSTOP does: its connections stay, and nothing answers. Healing lets it go on.
func (c *Cluster) Pause(ctx context.Context, m *Member) (*Fault, error) {
	f := &Fault{Name: "pause " + m.name}
	if err := m.take(f.Name); err != nil {
		return nil, err
	}
	m.set(paused)
	if err := c.backend.pause(ctx, m); err != nil {
		m.set(running)
		m.release()
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	f.heal = func(ctx context.Context) error {
		if err := c.backend.resume(ctx, m); err != nil {
			return err
		}
		m.set(running)
		if err := c.poll(ctx, m, func(ctx context.Context) error { return c.answers(ctx, m) }); err != nil {
			return err
		}
		m.release()
		return nil
	}
	return f, nil
}

// Cut takes the links between a member and others away, without a word, as a network does: nothing arrives, not even that a connection has
// ended, and new connections get no answer. What was sent arrives when the links are healed, unless the connection was given up. Members without a link to it are no error,
// as long as one has one.
//
//	c.Cut(ctx, c.Bridges()[0], c.Database()...)   // a bridge from its database
//	c.Cut(ctx, leader, c.NATS()...)               // a NATS server from its peers
func (c *Cluster) Cut(ctx context.Context, from *Member, to ...*Member) (*Fault, error) {
	return c.hurt(ctx, "cut", setting{Cut: true}, from, to)
}

// Refuse closes all connections between a member and others, and each new one at once.
func (c *Cluster) Refuse(ctx context.Context, from *Member, to ...*Member) (*Fault, error) {
	return c.hurt(ctx, "refuse", setting{Refuse: true}, from, to)
}

// Slow delays all that goes over the links between a member and others, in either direction, by at least a millisecond.
func (c *Cluster) Slow(ctx context.Context, delay time.Duration, from *Member, to ...*Member) (*Fault, error) {
	return c.hurt(ctx, "slow by "+delay.String()+",", setting{DelayMS: int(max(delay, time.Millisecond).Milliseconds())}, from, to)
}

// Isolate is Cut of all links of a member.
func (c *Cluster) Isolate(ctx context.Context, m *Member) (*Fault, error) {
	return c.hurtLinks(ctx, "isolate "+m.name, setting{Cut: true}, c.links.of(m))
}

func (c *Cluster) hurt(ctx context.Context, what string, s setting, from *Member, to []*Member) (*Fault, error) {
	var names []string
	var found []link
	for _, m := range to {
		if between := c.links.between(from, m); len(between) > 0 {
			found = append(found, between...)
			names = append(names, m.name)
		}
	}
	return c.hurtLinks(ctx, fmt.Sprintf("%s %s from %s", what, from, strings.Join(names, ", ")), s, found)
}

func (c *Cluster) hurtLinks(ctx context.Context, name string, s setting, which []link) (*Fault, error) {
	if len(which) == 0 {
		return nil, fmt.Errorf("%s: there is no such link", name)
	}
	if err := c.links.take(which, name); err != nil {
		return nil, err
	}
	f := &Fault{Name: name}
	f.heal = func(ctx context.Context) error {
		if err := c.links.apply(ctx, which, setting{}); err != nil {
			return err
		}
		c.links.release(which)
		return nil
	}
	if err := c.links.apply(ctx, which, s); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Heal(context.WithoutCancel(ctx)))
	}
	return f, nil
}

// Terminate asks a member to end (SIGTERM; Postgres shuts down fast), and returns when it has. Another exit status than 0 is the error; the
// member has ended then too. StartAgain is what ends this.
func (c *Cluster) Terminate(ctx context.Context, m *Member) error {
	name := "terminate " + m.name
	if err := m.take(name); err != nil {
		return err
	}
	m.set(stopped)
	if err := c.backend.terminate(ctx, m); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// StartAgain starts a member that was terminated, and returns when it answers.
func (c *Cluster) StartAgain(ctx context.Context, m *Member) error {
	m.mu.Lock()
	terminated := m.state == stopped && strings.HasPrefix(m.fault, "terminate ")
	m.mu.Unlock()
	if !terminated {
		return fmt.Errorf("start %s: it was not terminated", m)
	}
	return c.revive(ctx, m)
}

// Restart is Terminate and StartAgain.
func (c *Cluster) Restart(ctx context.Context, m *Member) error {
	if err := c.Terminate(ctx, m); err != nil {
		return err
	}
	return c.StartAgain(ctx, m)
}

// Upgrade is Restart of a bridge or a worker as another build. What can be built before the old one ends is.
func (c *Cluster) Upgrade(ctx context.Context, m *Member, b Build) error {
	if m.kind != Bridge && m.kind != Worker {
		return fmt.Errorf("upgrade %s: only bridges and workers are of this module", m)
	}
	next := &Member{c: c, name: m.name, kind: m.kind, build: b}
	if err := c.backend.prepare(ctx, []*Member{next}); err != nil {
		return fmt.Errorf("upgrade %s: %w", m, err)
	}
	if err := c.Terminate(ctx, m); err != nil {
		return err
	}
	if err := c.backend.forget(ctx, m); err != nil {
		return fmt.Errorf("upgrade %s: %w", m, err)
	}
	m.mu.Lock()
	m.build = b
	m.mu.Unlock()
	return c.StartAgain(ctx, m)
}
