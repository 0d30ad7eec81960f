package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/integration/images"
	"github.com/pointsman/pointsman/integration/programs"
)

// containers are members in a network of their own. The test reaches it through the ports of one of them alone, that of the links, which
// is never hurt: so its addresses stay, whatever is killed and made again.
type containers struct {
	c       *Cluster
	docker  *testcontainers.DockerClient
	network *testcontainers.DockerNetwork

	mu      sync.Mutex
	images  map[string]string // by Member.binary
	members map[*Member]testcontainers.Container
	printed map[*Member]string // by containers that are gone
}

// Ports inside the network.
var wellKnown = map[port]int{portNATS: 4222, portPeers: 6222, portPostgres: 5432, portPooler: 6432, portHTTP: 8080, portControl: 8474}

// firstLink is the port of the link with the number 0.
const firstLink = 20000

const containerDir = "/pointsman"

// newContainers is errNoDocker where the test may be skipped.
func newContainers(ctx context.Context, c *Cluster) (_ backend, err error) {
	cs := &containers{
		c: c, images: map[string]string{}, members: map[*Member]testcontainers.Container{}, printed: map[*Member]string{},
	}
	if cs.docker, err = connectDocker(ctx); err != nil {
		return nil, err
	}
	if err := removeOrphans(ctx, cs.docker); err != nil {
		return nil, errors.Join(err, cs.docker.Close())
	}
	if cs.network, err = network.New(ctx, network.WithLabels(labels())); err != nil {
		return nil, errors.Join(err, cs.docker.Close())
	}
	return cs, nil
}

func (cs *containers) prepare(ctx context.Context, members []*Member) error {
	for _, m := range members {
		cs.mu.Lock()
		_, ok := cs.images[m.binary()]
		cs.mu.Unlock()
		if ok {
			continue
		}
		name, err := cs.image(ctx, m)
		if err != nil {
			return err
		}
		cs.mu.Lock()
		cs.images[m.binary()] = name
		cs.mu.Unlock()
	}
	return nil
}

func (cs *containers) image(ctx context.Context, m *Member) (string, error) {
	switch m.kind {
	case NATS:
		return images.NATS(ctx, cs.docker)
	case Postgres:
		return images.Postgres(ctx, cs.docker)
	case Pooler:
		return images.PgBouncer(ctx, cs.docker)
	}
	what := m.program()
	dir, err := programs.Build(ctx, programs.Options{Version: m.build.Version, Tags: m.build.Tags, Static: true}, what)
	if err != nil {
		return "", err
	}
	return images.Program(ctx, cs.docker, filepath.Join(dir, programs.Name(what)))
}

func (cs *containers) address(m *Member, p port) string {
	return net.JoinHostPort(m.name, strconv.Itoa(wellKnown[p]))
}

func (cs *containers) bind(_ *Member, p port) string {
	return net.JoinHostPort("0.0.0.0", strconv.Itoa(wellKnown[p]))
}

func (cs *containers) dir(*Member) string { return containerDir }

func (cs *containers) control(ctx context.Context, proxy *Member) (string, error) {
	return cs.container(proxy).PortEndpoint(ctx, fmt.Sprintf("%d/tcp", wellKnown[portControl]), "")
}

func (cs *containers) listen(i int, _ bool) string {
	return net.JoinHostPort("0.0.0.0", strconv.Itoa(firstLink+i))
}

func (cs *containers) reach(ctx context.Context, i int, ofTest bool, _ string) (string, error) {
	if !ofTest {
		return net.JoinHostPort(string(proxy), strconv.Itoa(firstLink+i)), nil
	}
	for _, m := range cs.c.members {
		if m.kind == proxy {
			return cs.container(m).PortEndpoint(ctx, fmt.Sprintf("%d/tcp", firstLink+i), "")
		}
	}
	return "", errors.New("there are no links")
}

func (cs *containers) container(m *Member) testcontainers.Container {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.members[m]
}

// standbyScript copies the primary where there are no data, and becomes the server. What is copied by half does not count as data.
const standbyScript = `if [ ! -s "$PGDATA/PG_VERSION" ]; then
	rm -rf "$PGDATA.new"
	pg_basebackup -d "$FOLLOW" -D "$PGDATA.new" -R -X stream -c fast --no-sync
	mv "$PGDATA.new" "$PGDATA"
fi
exec docker-entrypoint.sh "$@"`

func (cs *containers) launch(ctx context.Context, m *Member, s spec) error {
	if had := cs.container(m); had != nil {
		_, err := cs.docker.ContainerStart(ctx, had.GetContainerID(), client.ContainerStartOptions{}) // one that runs is left alone
		return err
	}
	cs.mu.Lock()
	req := testcontainers.ContainerRequest{
		Image: cs.images[m.binary()], Cmd: s.args, Env: map[string]string{}, Labels: labels(),
		Networks: []string{cs.network.Name}, NetworkAliases: map[string][]string{cs.network.Name: {m.name}},
		ConfigModifier: func(c *container.Config) { c.Hostname = m.name },
	}
	cs.mu.Unlock()
	for _, kv := range s.env {
		name, value, _ := strings.Cut(kv, "=")
		req.Env[name] = value
	}
	for name, text := range s.files {
		req.Files = append(req.Files, testcontainers.ContainerFile{Reader: strings.NewReader(text), ContainerFilePath: containerDir + "/" + name, FileMode: 0o644})
	}
	switch m.kind {
	case proxy:
		req.ExposedPorts = append(req.ExposedPorts, fmt.Sprintf("%d/tcp", wellKnown[portControl]))
		for i, l := range cs.c.wanted() {
			if l.from == test {
				req.ExposedPorts = append(req.ExposedPorts, fmt.Sprintf("%d/tcp", firstLink+i))
			}
		}
	case Postgres:
		cs.postgres(&req, s)
	case Pooler:
		req.Entrypoint = []string{"pgbouncer"}
	}
	made, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{ContainerRequest: req, Started: true})
	if made != nil {
		cs.mu.Lock()
		cs.members[m] = made
		cs.mu.Unlock()
	}
	return err
}

func (cs *containers) postgres(req *testcontainers.ContainerRequest, s spec) {
	req.ConfigModifier = func(c *container.Config) { c.User = "postgres" }
	req.Env["PGDATA"] = "/var/lib/postgresql/pointsman" // beside the volume that the official image has, in the container itself
	req.Env["POSTGRES_PASSWORD"] = cs.c.secret
	req.Env["POSTGRES_INITDB_ARGS"] = "--no-sync"
	req.Cmd = append([]string{"postgres"}, s.args...)
	if s.follow != "" {
		req.Env["FOLLOW"] = s.follow
		req.Entrypoint = []string{"sh", "-ec", standbyScript, "sh"}
		return
	}
	req.Files = append(req.Files, testcontainers.ContainerFile{
		Reader:            strings.NewReader("echo 'host replication all all scram-sha-256' >> \"$PGDATA/pg_hba.conf\"\n"),
		ContainerFilePath: "/docker-entrypoint-initdb.d/replication.sh", FileMode: 0o644,
	})
}

func (cs *containers) kill(ctx context.Context, m *Member) error {
	id := cs.container(m).GetContainerID()
	if _, err := cs.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		return err
	}
	return cs.wait(ctx, id, func(container.WaitResponse) error { return nil })
}

func (cs *containers) wait(ctx context.Context, id string, ended func(container.WaitResponse) error) error {
	w := cs.docker.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case how := <-w.Result:
		return ended(how)
	case err := <-w.Error:
		return err
	}
}

// forcedAfter is when Docker kills what was asked to end: never before the test gives up.
var forcedAfter = int(time.Hour.Seconds())

func (cs *containers) terminate(ctx context.Context, m *Member) error {
	id := cs.container(m).GetContainerID()
	if _, err := cs.docker.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &forcedAfter}); err != nil {
		return err
	}
	return cs.wait(ctx, id, func(how container.WaitResponse) error {
		if how.StatusCode != 0 {
			return fmt.Errorf("exit status %d", how.StatusCode)
		}
		return nil
	})
}

func (cs *containers) quit(ctx context.Context, m *Member) error {
	id := cs.container(m).GetContainerID()
	if _, err := cs.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "QUIT"}); err != nil {
		return err
	}
	return cs.wait(ctx, id, func(container.WaitResponse) error { return nil })
}

func (cs *containers) pause(ctx context.Context, m *Member) error {
	return outlast(ctx, freezeTimeout, func(ctx context.Context) error { // on a machine with much to do the runtime may give up, and lets all of it go on
		_, err := cs.docker.ContainerPause(ctx, cs.container(m).GetContainerID(), client.ContainerPauseOptions{})
		return err
	})
}

func (cs *containers) resume(ctx context.Context, m *Member) error {
	_, err := cs.docker.ContainerUnpause(ctx, cs.container(m).GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

func (cs *containers) forget(ctx context.Context, m *Member) error {
	printed := cs.log(m)
	if err := cs.remove(ctx, cs.container(m)); err != nil {
		return err
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.members, m)
	cs.printed[m] = printed
	return nil
}

func (cs *containers) remove(ctx context.Context, c testcontainers.Container) error {
	_, err := cs.docker.ContainerRemove(ctx, c.GetContainerID(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}

func (cs *containers) exited(m *Member) error {
	c := cs.container(m)
	if c == nil {
		return errors.New("it was never started")
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	state, err := c.State(ctx)
	if err != nil || state.Running || state.Status == container.StateCreated {
		return nil // it is not known to have ended
	}
	return fmt.Errorf("exit status %d: %s", state.ExitCode, tail(cs.log(m)))
}

func (cs *containers) log(m *Member) string {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	cs.mu.Lock()
	before := cs.printed[m]
	cs.mu.Unlock()
	c := cs.container(m)
	if c == nil {
		return before
	}
	r, err := c.Logs(ctx)
	if err != nil {
		return before + err.Error()
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		return before + string(text) + err.Error()
	}
	return before + string(text)
}

func (cs *containers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var group errgroup.Group
	for _, c := range cs.members {
		group.Go(func() error { return cs.remove(ctx, c) })
	}
	err := group.Wait()
	_, nerr := cs.docker.NetworkRemove(ctx, cs.network.ID, client.NetworkRemoveOptions{})
	return errors.Join(err, nerr, cs.docker.Close())
}
