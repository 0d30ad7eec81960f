package cluster

import (
	"context"
	"time"
)

// Fault is something that is wrong with a cluster, from the return of the method that made it until Heal.
type Fault struct {
	// Name says what and where: "kill bridge1".
	Name string
	heal func(ctx context.Context) error
}

func (f *Fault) String() string { return f.Name }

// Heal ends the fault, and returns when what was hurt takes part again: a program is ready, a server takes requests. That others have
// noticed is theirs to show. Healing again does nothing. One that returns an error can be tried again.
func (f *Fault) Heal(ctx context.Context) error { return nil }

// Kill is kill -9 of a member, with all its processes. Healing starts it again on the data that it had.
func (c *Cluster) Kill(ctx context.Context, m *Member) (*Fault, error) { return nil, nil }

// Pause stops a member with all its processes, as SIGSTOP does: its connections stay, and nothing answers. Healing lets it go on.
func (c *Cluster) Pause(ctx context.Context, m *Member) (*Fault, error) { return nil, nil }

// Cut takes the links between a member and others away, without a word, as a network does: what is sent is lost, connections stay until
// somebody gives up. Healing closes what connections there are, and lets new ones through. A paused end is an error: see [Cluster.Pause].
//
//	c.Cut(ctx, c.Bridges()[0], c.Database()...)   // a bridge from its database
//	c.Cut(ctx, leader, c.NATS()...)               // a NATS server from its peers
func (c *Cluster) Cut(ctx context.Context, from *Member, to ...*Member) (*Fault, error) {
	return nil, nil
}

// Refuse is Cut with a word: connections are closed, and new ones closed at once.
func (c *Cluster) Refuse(ctx context.Context, from *Member, to ...*Member) (*Fault, error) {
	return nil, nil
}

// Slow delays all that goes over the links between a member and others, in either direction.
func (c *Cluster) Slow(ctx context.Context, delay time.Duration, from *Member, to ...*Member) (*Fault, error) {
	return nil, nil
}

// Isolate is Cut of all links of a member.
func (c *Cluster) Isolate(ctx context.Context, m *Member) (*Fault, error) { return nil, nil }

// Failover kills the primary and promotes its standby, which takes writes when this returns. Healing makes the killed one the standby of
// the promoted: it begins anew, from a copy. Until then the promoted one commits alone.
func (c *Cluster) Failover(ctx context.Context) (*Fault, error) { return nil, nil }

// Fill makes a stream refuse what is published to it, as one whose bound is reached. Healing gives it its bound back.
func (c *Cluster) Fill(ctx context.Context, stream string) (*Fault, error) { return nil, nil }

// Terminate asks a member to end (SIGTERM; of Postgres a fast shutdown), and returns when it has. An exit status other than 0 is the error.
func (c *Cluster) Terminate(ctx context.Context, m *Member) error { return nil }

// StartAgain starts a member that was killed or terminated, and returns when it is ready.
func (c *Cluster) StartAgain(ctx context.Context, m *Member) error { return nil }

// Restart is Terminate and StartAgain.
func (c *Cluster) Restart(ctx context.Context, m *Member) error { return nil }

// Upgrade is Restart of a bridge or a worker with another build.
func (c *Cluster) Upgrade(ctx context.Context, m *Member, b Build) error { return nil }

// Ready returns when all members that run take part: programs say that they are ready, all NATS servers are up to date with their streams, and
// the standby streams.
func (c *Cluster) Ready(ctx context.Context) error { return nil }

// Leader is the NATS server that leads a stream.
func (c *Cluster) Leader(ctx context.Context, stream string) (*Member, error) { return nil, nil }
