package cluster

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"

	"github.com/goccy/go-yaml"
)

// spec is how a member is run.
type spec struct {
	args  []string
	env   []string
	files map[string]string // in the member's directory
	// follow is, for a Postgres without data, the primary that it copies, as a connection string.
	follow string
}

// Names inside a member's directory.
const (
	configFile = "pointsman.yaml"
	natsFile   = "nats.conf"
	poolerFile = "pgbouncer.ini"
	dataDir    = "data"
)

// superuser owns everything; clients come with its password.
const superuser = "postgres"

// spec of a member as the cluster is now.
func (c *Cluster) spec(m *Member) (spec, error) {
	switch m.kind {
	case NATS:
		return c.natsSpec(m), nil
	case Postgres:
		return c.postgresSpec(m), nil
	case Pooler:
		return c.poolerSpec(m), nil
	case proxy:
		return spec{args: []string{"-api", c.backend.bind(m, portControl)}}, nil
	}
	return c.programSpec(m)
}

func (c *Cluster) natsSpec(m *Member) spec {
	dir := c.backend.dir(m)
	text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream {store_dir: %q, max_file_store: 8GB, max_memory_store: 256MB}\n",
		m.name, c.backend.bind(m, portNATS), path.Join(dir, dataDir))
	if servers := c.NATS(); len(servers) > 1 {
		var routes []string
		for _, other := range servers {
			if other != m {
				routes = append(routes, fmt.Sprintf("%q", "nats://"+c.links.addr(m, other, portPeers)))
			}
		}
		// What servers tell each other and their clients of the others leads nowhere: all go over the links that they have been given.
		text += fmt.Sprintf("cluster {name: pointsman, listen: %q, advertise: \"127.0.0.1:1\", no_advertise: true, routes: [%s]}\n",
			c.backend.bind(m, portPeers), strings.Join(routes, ", "))
	}
	return spec{args: []string{"--config", path.Join(dir, natsFile)}, files: map[string]string{natsFile: text}}
}

func (c *Cluster) postgresSpec(m *Member) spec {
	host, port, _ := net.SplitHostPort(c.backend.bind(m, portPostgres))
	var s spec
	for _, setting := range []string{
		"listen_addresses=" + host, "port=" + port,
		"max_connections=200", "shared_buffers=64MB", "deadlock_timeout=100ms",
		"fsync=off", // nothing here loses its power: what a killed server has written is there
		"wal_keep_size=512MB", "wal_retrieve_retry_interval=200ms", "max_wal_size=1GB",
	} {
		s.args = append(s.args, "-c", setting)
	}
	if primary := c.Primary(); primary != nil && primary != m {
		host, port, _ := net.SplitHostPort(c.links.addr(m, primary, portPostgres))
		s.follow = fmt.Sprintf("host=%s port=%s user=%s password=%s application_name=%s", host, port, superuser, c.secret, m.name)
	}
	return s
}

func (c *Cluster) poolerSpec(m *Member) spec {
	host, port, _ := net.SplitHostPort(c.backend.bind(m, portPooler))
	toHost, toPort, _ := net.SplitHostPort(c.links.addr(m, c.behind(m), portPostgres))
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 1000
server_round_robin = 1
server_login_retry = 1
server_connect_timeout = 5
`, toHost, toPort, superuser, c.secret, host, port)
	return spec{args: []string{path.Join(c.backend.dir(m), poolerFile)}, files: map[string]string{poolerFile: text}}
}

// behind is the Postgres that a pooler is before: the one of the same number.
func (c *Cluster) behind(pooler *Member) *Member {
	for i, m := range c.Members(Pooler) {
		if m == pooler {
			return c.Members(Postgres)[i]
		}
	}
	return nil
}

func (c *Cluster) programSpec(m *Member) (spec, error) {
	text, err := c.cfg.programConfig()
	if err != nil {
		return spec{}, err
	}
	var databases, servers []string
	for _, db := range c.Database() {
		databases = append(databases, c.links.addr(m, db, db.kind.port()))
	}
	for _, server := range c.NATS() {
		servers = append(servers, "nats://"+c.links.addr(m, server, portNATS))
	}
	args := []string{"--config", path.Join(c.backend.dir(m), configFile)}
	if c.cfg.LogLevel != "" {
		args = append(args, "--log-level", c.cfg.LogLevel)
	}
	return spec{
		args: args,
		env: append([]string{
			"POINTSMAN_DATABASE_URL=" + c.databaseURL(databases),
			"POINTSMAN_NATS_URL=" + strings.Join(servers, ","),
			"POINTSMAN_HTTP_ADDR=" + c.backend.bind(m, portHTTP),
			"POINTSMAN_WORKER_HTTP_ADDR=" + c.backend.bind(m, portHTTP),
			"POINTSMAN_ADMIN_TOKEN=" + c.secret,
		}, c.cfg.Env...),
		files: map[string]string{configFile: text},
	}, nil
}

// databaseURL leads to the one of the hosts that takes writes.
func (c *Cluster) databaseURL(hosts []string) string {
	q := url.Values{"sslmode": {"disable"}, "connect_timeout": {"3"}}
	if len(hosts) > 1 {
		q.Set("target_session_attrs", "read-write")
	}
	return fmt.Sprintf("postgres://%s:%s@%s/postgres?%s", superuser, c.secret, strings.Join(hosts, ","), q.Encode())
}

// programConfig is the test's pointsman.yaml with what the cluster makes of it.
func (cfg *Config) programConfig() (string, error) {
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(cfg.Config), &doc); err != nil {
		return "", fmt.Errorf("Config: %w", err)
	}
	if doc == nil {
		doc = map[string]any{}
	}
	section := func(name string) map[string]any {
		s, ok := doc[name].(map[string]any)
		if !ok {
			s = map[string]any{}
			doc[name] = s
		}
		return s
	}
	if cfg.Pooler {
		section("database")["pooler"] = "transaction"
	}
	if nats := section("nats"); nats["replicas"] == nil {
		nats["replicas"] = min(cfg.NATS, 3)
	}
	text, err := yaml.Marshal(doc)
	return string(text), err
}
