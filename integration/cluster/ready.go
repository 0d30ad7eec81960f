package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	pollPause = 20 * time.Millisecond
	tryFor    = 5 * time.Second // one look

	electionTimeout = time.Minute
	freezeTimeout   = 30 * time.Second // of a container
)

// poll tries until it succeeds, ctx ends, or the member does.
func (c *Cluster) poll(ctx context.Context, m *Member, try func(ctx context.Context) error) error {
	return persist(ctx, try, func() error {
		if ended := c.backend.exited(m); ended != nil {
			return fmt.Errorf("it ended: %w", ended)
		}
		return nil
	})
}

// persist tries until it succeeds, ctx ends, or hopeless says why to give up.
func persist(ctx context.Context, try func(ctx context.Context) error, hopeless func() error) error {
	for {
		once, cancel := context.WithTimeout(ctx, tryFor)
		err := try(once)
		cancel()
		if err == nil {
			return nil
		}
		if end := hopeless(); end != nil {
			return end
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollPause):
		}
	}
}

// outlast tries until it succeeds, ctx ends, or the time is over in which what was done to a cluster, or to the machine, passes.
func outlast(ctx context.Context, within time.Duration, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return persist(ctx, try, func() error { return nil })
}

// answers says whether a member does what clients ask, whatever it needs for that itself.
func (c *Cluster) answers(ctx context.Context, m *Member) error {
	switch m.kind {
	case NATS:
		nc, err := nats.Connect("nats://"+c.links.ofTest(m), nats.Timeout(tryFor))
		if err != nil {
			return err
		}
		nc.Close()
		return nil
	case Postgres, Pooler:
		return c.query(ctx, m, `select 1`, new(int))
	}
	_, err := c.health(ctx, m)
	return err
}

// directURL leads the test to one Postgres or pooler.
func (c *Cluster) directURL(m *Member) string { return c.databaseURL([]string{c.links.ofTest(m)}) }

// query asks one Postgres or pooler for a row.
func (c *Cluster) query(ctx context.Context, m *Member, sql string, into ...any) error {
	conn, err := c.connect(ctx, m)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return conn.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(into...)
}

// tell has one Postgres run statements, each by itself.
func (c *Cluster) tell(ctx context.Context, m *Member, sql ...string) error {
	conn, err := c.connect(ctx, m)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, s := range sql {
		if _, err := conn.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %s: %w", m, s, err)
		}
	}
	return nil
}

func (c *Cluster) connect(ctx context.Context, m *Member) (*pgx.Conn, error) {
	return pgx.Connect(ctx, c.directURL(m))
}

// health is what a program says of itself: nil when it is ready. The second error is that it does not answer.
func (c *Cluster) health(ctx context.Context, m *Member) (unready, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/readyz", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // a connection that is kept says nothing of a program that has been started again
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil, nil
	}
	text, err := io.ReadAll(resp.Body)
	return fmt.Errorf("%s says %s: %s", m, resp.Status, strings.TrimSpace(string(text))), err
}

// Ready returns when all members that run take part: bridges and workers say that they are ready, all NATS servers are up to date with
// their streams, and the standby streams. At the end of ctx the error says what is missing.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, m := range c.members {
		if !m.Running() || m.kind == proxy {
			continue
		}
		if err := c.poll(ctx, m, func(ctx context.Context) error { return c.takesPart(ctx, m) }); err != nil {
			return fmt.Errorf("%s is not ready: %w", m, err)
		}
	}
	return nil
}

func (c *Cluster) takesPart(ctx context.Context, m *Member) error {
	switch m.kind {
	case NATS:
		return c.upToDate(ctx, m)
	case Postgres:
		if m == c.Primary() || !c.Primary().Running() {
			return c.answers(ctx, m)
		}
		return c.streams(ctx, m)
	case Pooler:
		return c.answers(ctx, m)
	}
	unready, err := c.health(ctx, m)
	return errors.Join(unready, err)
}

// upToDate says whether a server has JetStream, and is in no stream behind its leader.
func (c *Cluster) upToDate(ctx context.Context, m *Member) error {
	nc, err := nats.Connect("nats://"+c.links.ofTest(m), nats.Timeout(tryFor))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		return err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if info.Cluster == nil || len(c.NATS()) == 1 {
			continue
		}
		if info.Cluster.Leader == "" {
			return fmt.Errorf("the stream %s has no leader", info.Config.Name)
		}
		for _, r := range info.Cluster.Replicas {
			if r.Name == m.name && (r.Offline || !r.Current) {
				return fmt.Errorf("the stream %s is not up to date", info.Config.Name)
			}
		}
	}
	return streams.Err()
}

// streams says whether the standby follows the primary.
func (c *Cluster) streams(ctx context.Context, standby *Member) error {
	var n int
	err := c.query(ctx, c.Primary(), `select count(*) from pg_stat_replication where state = 'streaming' and application_name = '`+standby.name+`'`, &n)
	if err == nil && n == 0 {
		err = errors.New("it does not stream")
	}
	return err
}

// synchronous makes the primary wait with each commit for its standby, and returns when it does.
func (c *Cluster) synchronous(ctx context.Context) error {
	primary, standby := c.Primary(), c.Standby()
	if err := c.poll(ctx, standby, func(ctx context.Context) error { return c.streams(ctx, standby) }); err != nil {
		return fmt.Errorf("%s: %w", standby, err)
	}
	if err := c.tell(ctx, primary, `alter system set synchronous_standby_names = '*'`, `select pg_reload_conf()`); err != nil {
		return err
	}
	return c.poll(ctx, standby, func(ctx context.Context) error { return c.inSync(ctx) })
}

// inSync says whether the primary waits for its standby.
func (c *Cluster) inSync(ctx context.Context) error {
	var n int
	err := c.query(ctx, c.Primary(), `select count(*) from pg_stat_replication where state = 'streaming' and sync_state = 'sync'`, &n)
	if err == nil && n == 0 {
		err = errors.New("no standby is waited for")
	}
	return err
}

// Leader is the NATS server that leads a stream. After a fault it is waited for: its peers have to agree on one first.
func (c *Cluster) Leader(ctx context.Context, stream string) (leader *Member, err error) {
	err = outlast(ctx, electionTimeout, func(ctx context.Context) error {
		leader, err = c.leaderNow(ctx, stream)
		return err
	})
	return leader, err
}

func (c *Cluster) leaderNow(ctx context.Context, stream string) (leader *Member, err error) {
	err = c.withJetStream(func(js jetstream.JetStream) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
		info := s.CachedInfo().Cluster
		for _, m := range c.NATS() {
			if len(c.NATS()) == 1 || info != nil && info.Leader == m.name {
				leader = m
				return nil
			}
		}
		return fmt.Errorf("stream %s has no leader", stream)
	})
	return leader, err
}
