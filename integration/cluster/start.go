package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/migrations"
)

func start(ctx context.Context, t testing.TB, cfg Config) (*Cluster, error) {
	c := &Cluster{t: t, cfg: cfg, secret: rand.Text()}
	if _, err := cfg.programConfig(); err != nil {
		return nil, err
	}
	proxy := c.addMembers()
	var err error
	if c.backend, err = newBackend(ctx, c); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		c.keepLogs()
		if err := c.backend.close(); err != nil {
			t.Errorf("cluster: %v", err)
		}
	})
	if err := c.backend.prepare(ctx, c.members); err != nil {
		return nil, err
	}
	if err := c.layLinks(ctx, proxy); err != nil {
		return nil, err
	}
	servers, ctx1 := errgroup.WithContext(ctx)
	for _, m := range c.NATS() {
		servers.Go(func() error { return c.run(ctx1, m) })
	}
	servers.Go(func() error { return c.startDatabase(ctx1) })
	if err := servers.Wait(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := c.makeStreams(ctx); err != nil {
		return nil, err
	}
	rest, ctx2 := errgroup.WithContext(ctx)
	for _, m := range append(c.Bridges(), c.Workers()...) {
		rest.Go(func() error { return c.run(ctx2, m) })
	}
	if err := rest.Wait(); err != nil {
		return nil, err
	}
	return c, c.Ready(ctx)
}

// makeStreams waits for the servers to have found each other.
func (c *Cluster) makeStreams(ctx context.Context) error {
	return c.poll(ctx, c.NATS()[0], func(ctx context.Context) error {
		for _, cfg := range c.cfg.Streams {
			if cfg.Replicas == 0 {
				cfg.Replicas = min(c.cfg.NATS, 3)
			}
			if err := c.withJetStream(func(js jetstream.JetStream) error {
				_, err := js.CreateOrUpdateStream(ctx, cfg)
				return err
			}); err != nil {
				return fmt.Errorf("stream %s: %w", cfg.Name, err)
			}
		}
		return nil
	})
}

// withJetStream connects to any server.
func (c *Cluster) withJetStream(do func(js jetstream.JetStream) error) error {
	nc, err := nats.Connect(c.NATSURL(), nats.Timeout(tryFor))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return do(js)
}

// addMembers makes them, without running any, and returns the one that has the links.
func (c *Cluster) addMembers() (links *Member) {
	add := func(kind Kind, n int) {
		for i := range n {
			m := &Member{c: c, name: fmt.Sprintf("%s%d", kind, i+1), kind: kind, state: stopped}
			if kind == Bridge || kind == Worker {
				m.build = c.cfg.Build
			}
			c.members = append(c.members, m)
		}
	}
	servers := 1
	if c.cfg.Standby {
		servers = 2
	}
	add(NATS, c.cfg.NATS)
	add(Postgres, servers)
	if c.cfg.Pooler {
		add(Pooler, servers)
	}
	add(Bridge, c.cfg.Bridges)
	add(Worker, c.cfg.Workers)
	links = &Member{c: c, name: string(proxy), kind: proxy, state: stopped}
	c.members = append(c.members, links)
	c.primary = c.Members(Postgres)[0]
	return links
}

// layLinks starts the proxy, and makes the links that members will use.
func (c *Cluster) layLinks(ctx context.Context, proxy *Member) error {
	s, err := c.spec(proxy)
	if err != nil {
		return err
	}
	if err := c.backend.launch(ctx, proxy, s); err != nil {
		return err
	}
	proxy.set(running)
	control, err := c.backend.control(ctx, proxy)
	if err != nil {
		return err
	}
	c.links = newLinks("http://" + control)
	if err := c.poll(ctx, proxy, c.links.answer); err != nil {
		return err
	}
	for i, l := range c.wanted() {
		w := &way{listen: c.backend.listen(i, l.from == test), to: c.backend.address(l.to, l.port)}
		if err := c.links.lay(ctx, l, w); err != nil {
			return err
		}
		if w.addr, err = c.backend.reach(ctx, i, l.from == test, w.addr); err != nil {
			return err
		}
		if l.from == test && l.port == portHTTP {
			l.to.url = "http://" + w.addr
		}
	}
	return nil
}

// wanted are the links that the cluster has: those of the test first.
func (c *Cluster) wanted() (all []link) {
	for _, m := range c.members {
		if m.kind != proxy {
			all = append(all, link{test, m, m.kind.port()})
		}
	}
	for _, a := range c.NATS() {
		for _, b := range c.NATS() {
			if a != b {
				all = append(all, link{a, b, portPeers})
			}
		}
	}
	for _, a := range c.Members(Postgres) {
		for _, b := range c.Members(Postgres) {
			if a != b {
				all = append(all, link{a, b, portPostgres})
			}
		}
	}
	for _, m := range c.Members(Pooler) {
		all = append(all, link{m, c.behind(m), portPostgres})
	}
	for _, m := range append(c.Bridges(), c.Workers()...) {
		for _, to := range append(c.NATS(), c.Database()...) {
			all = append(all, link{m, to, to.kind.port()})
		}
	}
	return all
}

// startDatabase runs the primary, then what needs it, and migrates.
func (c *Cluster) startDatabase(ctx context.Context) error {
	if err := c.run(ctx, c.Primary()); err != nil {
		return err
	}
	rest, ctx2 := errgroup.WithContext(ctx)
	if !c.cfg.NoMigration {
		rest.Go(func() error { return migrations.Up(ctx2, c.directURL(c.Primary()), "") })
	}
	if standby := c.Standby(); standby != nil {
		rest.Go(func() error {
			if err := c.run(ctx2, standby); err != nil {
				return err
			}
			return c.synchronous(ctx2)
		})
	}
	if err := rest.Wait(); err != nil {
		return err
	}
	for _, m := range c.Members(Pooler) {
		if err := c.run(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// run launches a member and returns when it answers.
func (c *Cluster) run(ctx context.Context, m *Member) error {
	s, err := c.spec(m)
	if err != nil {
		return err
	}
	if err := c.backend.launch(ctx, m, s); err != nil {
		return fmt.Errorf("start %s: %w", m, err)
	}
	m.set(running)
	if err := c.poll(ctx, m, func(ctx context.Context) error { return c.answers(ctx, m) }); err != nil {
		return fmt.Errorf("start %s: %w", m, err)
	}
	return nil
}

func (c *Cluster) writeLog(dir string, m *Member, text string) {
	dir = filepath.Join(dir, strings.ReplaceAll(c.t.Name(), "/", "_"))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, m.name+".log"), []byte(text), 0o600)); err != nil {
		c.t.Logf("cluster: %v", err)
	}
}
