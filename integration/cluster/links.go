package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// port of a member.
type port string

const (
	portNATS     port = "nats"
	portPeers    port = "peers" // of NATS servers, for each other
	portPostgres port = "postgres"
	portPooler   port = "pooler"
	portHTTP     port = "http"
	portControl  port = "control" // of the links
)

// from the test.
var test = &Member{name: "test"}

// link is what one member connects to, to reach a port of another.
type link struct {
	from, to *Member
	port     port
}

func (l link) name() string { return l.from.name + "-" + l.to.name + "-" + string(l.port) }

// links are all ways between members, through the program of integration/cluster/links.
type links struct {
	control string // URL of the program

	mu    sync.Mutex
	ways  map[link]*way
	fault map[link]string // which fault a link has
}

// way is where a link listens.
type way struct {
	listen, to string
	addr       string // for who uses it
}

// setting is that of the program of the links.
type setting struct {
	Listen  string `json:"listen"`
	To      string `json:"to"`
	Cut     bool   `json:"cut"`
	Refuse  bool   `json:"refuse"`
	DelayMS int    `json:"delay_ms"`
}

const controlTimeout = 20 * time.Second

func newLinks(control string) *links {
	return &links{control: control, ways: map[link]*way{}, fault: map[link]string{}}
}

// lay makes a link.
func (ls *links) lay(ctx context.Context, l link, w *way) error {
	addr, err := ls.put(ctx, l, setting{Listen: w.listen, To: w.to})
	if err != nil {
		return err
	}
	w.addr = addr
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ways[l] = w
	return nil
}

// apply changes links.
func (ls *links) apply(ctx context.Context, which []link, s setting) error {
	for _, l := range which {
		if _, err := ls.put(ctx, l, s); err != nil {
			return err
		}
	}
	return nil
}

func (ls *links) put(ctx context.Context, l link, s setting) (addr string, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	text, err := ls.ask(ctx, http.MethodPut, "/links/"+l.name(), body)
	if err != nil {
		return "", fmt.Errorf("link %s: %w", l.name(), err)
	}
	var answer struct{ Addr string }
	err = json.Unmarshal(text, &answer)
	return answer.Addr, err
}

// answer is nil when the program does. That its port can be reached is not enough: Docker listens there before.
func (ls *links) answer(ctx context.Context) error {
	_, err := ls.ask(ctx, http.MethodGet, "/", nil)
	return err
}

func (ls *links) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, ls.control+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Close = true // no connection is left when the test ends
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return text, err
}

// between are the links from one member to another, and back.
func (ls *links) between(a, b *Member) (found []link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.ways {
		if l.from == a && l.to == b || l.from == b && l.to == a {
			found = append(found, l)
		}
	}
	return found
}

// of are the links that a member has with others.
func (ls *links) of(m *Member) (found []link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.ways {
		if l.from != test && (l.from == m || l.to == m) {
			found = append(found, l)
		}
	}
	return found
}

// take reserves links for a fault.
func (ls *links) take(which []link, fault string) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range which {
		if had := ls.fault[l]; had != "" {
			return fmt.Errorf("%s: the link %s has a fault already: %s", fault, l.name(), had)
		}
	}
	for _, l := range which {
		ls.fault[l] = fault
	}
	return nil
}

func (ls *links) release(which []link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range which {
		delete(ls.fault, l)
	}
}

// addr is what a member connects to, to reach another.
func (ls *links) addr(from, to *Member, p port) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.ways[link{from, to, p}].addr
}

// ofTest is what the test connects to, to reach a member's main port.
func (ls *links) ofTest(m *Member) string { return ls.addr(test, m, m.kind.port()) }

func (k Kind) port() port {
	switch k {
	case NATS:
		return portNATS
	case Postgres:
		return portPostgres
	case Pooler:
		return portPooler
	}
	return portHTTP
}
