package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// link stands between a program and a server. It can be cut, so that connections are closed and refused, or be a hole, which takes all
// that is sent and passes nothing on.
type link struct {
	addr   string
	listen net.Listener
	target [2]string // network, address
	wg     sync.WaitGroup

	refused atomic.Int64 // connections
	hole    atomic.Bool  // what is swallowed is lost for ever
	deaf    atomic.Bool  // swallows only what the server says

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newLink(t *testing.T, network, address string) *link {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: listen.Addr().String(), listen: listen, target: [2]string{network, address}, conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.serve)
	t.Cleanup(func() {
		_ = listen.Close()
		l.set(true)
		l.wg.Wait()
	})
	return l
}

// linkToPostgres is a link, and the URL that leads over it.
func linkToPostgres(t *testing.T, databaseURL string) (*link, string) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	c := cfg.ConnConfig
	network, address := pgconn.NetworkAddress(c.Host, c.Port)
	l := newLink(t, network, address)
	u := &url.URL{Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Host: l.addr, Path: "/" + c.Database, RawQuery: "sslmode=disable"}
	return l, u.String()
}

func linkToNATS(t *testing.T, natsURL string) (*link, string) {
	t.Helper()
	u, err := url.Parse(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(t, "tcp", u.Host)
	return l, "nats://" + l.addr
}

// set cuts the link, or mends it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

func (l *link) serve() {
	for {
		c, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.join(c) })
	}
}

func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		l.refused.Add(1)
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *link) join(client net.Conn) {
	defer func() { _ = client.Close() }()
	if !l.add(client) {
		return
	}
	far, err := net.Dial(l.target[0], l.target[1])
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !l.add(far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pass(far, client, &l.hole, &l.hole); _ = far.Close() })
	both.Go(func() { l.pass(client, far, &l.hole, &l.deaf); _ = client.Close() })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, client)
	delete(l.conns, far)
}

func (l *link) pass(to io.Writer, from io.Reader, swallow ...*atomic.Bool) {
	buffer, lost := make([]byte, 32<<10), false
	for {
		n, err := from.Read(buffer)
		// What follows a loss would make no sense to who hears it.
		lost = lost || slices.ContainsFunc(swallow, func(s *atomic.Bool) bool { return s.Load() })
		if n > 0 && !lost {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// confServer is a nats-server with a configuration file of its own, which can be changed.
type confServer struct {
	*server.Server
	t    *testing.T
	file string
}

func natsConf(t *testing.T, conf string) *confServer {
	t.Helper()
	dir := t.TempDir()
	c := &confServer{t: t, file: filepath.Join(dir, "nats.conf")}
	c.write(conf)
	opts, err := server.ProcessConfigFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	if c.Server, err = server.NewServer(opts); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() { c.Shutdown(); c.WaitForShutdown() })
	if !c.ReadyForConnections(patience) {
		t.Fatal("nats-server is not ready")
	}
	return c
}

var portOf = regexp.MustCompile(`(?m)^port: -1$`)

func (c *confServer) write(conf string) {
	c.t.Helper()
	text := "host: 127.0.0.1\nport: -1\nserver_name: test\n" + strings.ReplaceAll(conf, "STORE", filepath.Dir(c.file))
	if c.Server != nil {
		_, port, _ := net.SplitHostPort(c.Addr().String())
		text = portOf.ReplaceAllString(text, "port: "+port)
	}
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// change the configuration while the server runs.
func (c *confServer) change(conf string) {
	c.t.Helper()
	c.write(conf)
	if err := c.Reload(); err != nil {
		c.t.Fatal(err)
	}
}

// client is the library on the stack's database.
func (s *stack) client(databaseURL string) *engine.Client {
	s.Helper()
	db, err := engine.Connect(s.Context(), databaseURL, 4, false)
	s.must(err)
	s.Cleanup(db.Close)
	c, err := engine.NewClient(db, engine.Config{})
	s.must(err)
	return c
}

// waiting starts instances that nobody runs: all that they are sent stays in their inboxes.
func (s *stack) waiting(c *engine.Client, keys ...string) {
	s.Helper()
	for _, key := range keys {
		_, err := c.Start(s.Context(), engine.NewInstance{Machine: "nobodys", CorrelationKey: key})
		s.must(err)
	}
}

// stream makes one that keeps "<name in lower case>.>".
func (s *stack) stream(name string, change ...func(*jetstream.StreamConfig)) {
	s.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name) + ".>"}}
	for _, f := range change {
		f(&cfg)
	}
	_, err := s.js.CreateStream(s.Context(), cfg)
	s.must(err)
}

// numbers publishes {"key": key, "n": n} for each n.
func (s *stack) numbers(subject, key string, from, to int) {
	s.Helper()
	for n := from; n < to; n++ {
		_, err := s.js.PublishAsync(subject, fmt.Appendf(nil, `{"key": %q, "n": %d}`, key, n))
		s.must(err)
		if n%1000 == 999 || n == to-1 {
			select {
			case <-s.js.PublishAsyncComplete():
			case <-time.After(patience):
				s.Fatal("the server does not answer")
			}
		}
	}
}

// inbox waits until an instance has so many signals, and returns their numbers in the order of the inbox.
func (s *stack) inbox(key string, want int) (ns []int) {
	s.Helper()
	s.until(patience, fmt.Sprintf("%d signals for %s", want, key), func() (bool, string) {
		n := s.count(`select count(*) from pointsman.v_inbox where correlation_key = $1`, key)
		return n >= want, strconv.Itoa(n)
	})
	rows, err := s.db.Query(s.Context(), `select (payload->>'n')::int from pointsman.v_inbox where correlation_key = $1 order by id`, key)
	s.must(err)
	defer rows.Close()
	for rows.Next() {
		var n int
		s.must(rows.Scan(&n))
		ns = append(ns, n)
	}
	s.must(rows.Err())
	return ns
}

// has wants exactly these numbers in an inbox, in any order.
func (s *stack) has(key string, ranges ...[2]int) {
	s.Helper()
	var want []int
	for _, r := range ranges {
		for n := r[0]; n < r[1]; n++ {
			want = append(want, n)
		}
	}
	got := s.inbox(key, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("%s has %v, want %v", key, got, want)
	}
}

// consumer is what the server knows of a route's consumer.
func (s *stack) consumer(stream, route string) *jetstream.ConsumerInfo {
	s.Helper()
	c, err := s.js.Consumer(s.Context(), stream, "pointsman-"+route)
	s.must(err)
	return c.CachedInfo()
}

// acked waits until a route has acked so many messages, all that there are.
func (s *stack) acked(stream, route string, n uint64) *jetstream.ConsumerInfo {
	s.Helper()
	var info *jetstream.ConsumerInfo
	s.until(patience, fmt.Sprintf("%d messages of %s are acked", n, stream), func() (bool, string) {
		info = s.consumer(stream, route)
		return info.AckFloor.Stream >= n && info.NumAckPending == 0 && info.NumPending == 0, fmt.Sprintf("%+v", info)
	})
	return info
}

// metric is the value of a counter or gauge; 0 where there is none.
func (s *stack) metric(addr, name string) float64 {
	s.Helper()
	_, text := s.get("http://" + addr + "/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			s.must(err)
			return v
		}
	}
	return 0
}

// bridge runs one with a configuration, and returns its address when it is ready.
func (s *stack) bridge(name, yaml string) (p *process, addr string) {
	s.Helper()
	p = s.start(name, "bridge", "--config", s.file(name+".yaml", yaml))
	addr = p.address(s)
	s.ready(addr, http.StatusOK, "ready")
	return p, addr
}

// route is the configuration of a route from a stream of s.stream.
func route(name, stream, more string) string {
	return fmt.Sprintf("  - {name: %s, stream: %s, subject: %q, signal: n, correlation_key: \"{{payload.key}}\"%s}\n", name, stream, strings.ToLower(stream)+".>", more)
}

// audited runs the audit of a route until nothing is pending, with the exit status 0 each time, and wants these fates of the messages that
// the stream still has.
func (s *stack) audited(yaml, route, fates string) {
	s.Helper()
	file := s.file("audit-"+route+".yaml", yaml)
	s.until(patience, fmt.Sprintf("the audit of %s finds %s", route, fates), func() (bool, string) {
		status, printed := s.run("pointsman", "audit", "--route", route, "--config", file, "--json")
		if status != 0 {
			s.Fatalf("audit of %s: exit status %d\n%s", route, status, printed)
		}
		var found struct {
			Pending int
			Fates   map[string]int
		}
		s.must(json.Unmarshal([]byte(printed[strings.Index(printed, "{"):]), &found))
		return found.Pending == 0 && fmt.Sprint(found.Fates) == "map["+fates+"]", printed
	})
}
