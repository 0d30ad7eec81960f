package webhook

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"code.dny.dev/ssrf"

	"github.com/pointsman/pointsman/engine"
)

// answers are the rows of the table in docs/webhooks.md: what an answer makes of a webhook after its first attempt.
var answers = []struct {
	row    string // of the table
	name   string
	answer http.HandlerFunc
	status engine.DeliveryStatus
	reason string // that it has
	http   int
	wait   time.Duration // until the next attempt, at least
}{
	{"2xx", "200", status(200), engine.DeliveryDelivered, "", 200, 0},
	{"2xx", "204", status(204), engine.DeliveryDelivered, "", 204, 0},
	{"2xx", "299", status(299), engine.DeliveryDelivered, "", 299, 0},
	{"2xx", "huge body", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(endless('x'), 64<<20)) }, engine.DeliveryDelivered, "", 200, 0},
	{"2xx", "slow body", slowly, engine.DeliveryDelivered, "", 200, 0},
	{"2xx", "body that ends early", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "x")
	}, engine.DeliveryDelivered, "", 200, 0},
	{"3xx", "301", redirect(301), engine.DeliveryFailed, "redirects are not followed: send to where the receiver is, /elsewhere", 301, 0},
	{"3xx", "302", redirect(302), engine.DeliveryFailed, "redirects are not followed", 302, 0},
	{"3xx", "307", redirect(307), engine.DeliveryFailed, "redirects are not followed", 307, 0},
	{"3xx", "308", redirect(308), engine.DeliveryFailed, "redirects are not followed", 308, 0},
	{"3xx", "304", status(304), engine.DeliveryFailed, "redirects are not followed", 304, 0},
	{"4xx", "400", status(400), engine.DeliveryFailed, "HTTP status 400: the receiver refuses it", 400, 0},
	{"4xx", "401", status(401), engine.DeliveryFailed, "HTTP status 401", 401, 0},
	{"4xx", "404", status(404), engine.DeliveryFailed, "HTTP status 404", 404, 0},
	{"4xx", "408", status(408), engine.DeliveryFailed, "HTTP status 408", 408, 0},
	{"4xx", "410", status(410), engine.DeliveryFailed, "HTTP status 410", 410, 0},
	{"429", "429", status(429), engine.DeliveryPending, "HTTP status 429: the receiver has too many requests", 429, 5 * time.Second},
	{"429", "429, in 2 minutes", later(429, "120"), engine.DeliveryPending, "HTTP status 429", 429, 2 * time.Minute},
	{"429", "429, sooner than the delay", later(429, "1"), engine.DeliveryPending, "HTTP status 429", 429, 5 * time.Second},
	{"429", "429, in a day", later(429, "86400"), engine.DeliveryPending, "HTTP status 429", 429, 30 * time.Minute},
	{"429", "429, at a time", later(429, time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat)), engine.DeliveryPending, "HTTP status 429", 429, 10 * time.Minute},
	{"429", "429, some time", later(429, "soon"), engine.DeliveryPending, "HTTP status 429", 429, 5 * time.Second},
	{"5xx", "500", status(500), engine.DeliveryPending, "HTTP status 500", 500, 5 * time.Second},
	{"5xx", "502", status(502), engine.DeliveryPending, "HTTP status 502", 502, 5 * time.Second},
	{"5xx", "503, in 2 minutes", later(503, "120"), engine.DeliveryPending, "HTTP status 503", 503, 2 * time.Minute},
	{"5xx", "999", status(999), engine.DeliveryPending, "HTTP status 999", 999, 5 * time.Second},
	{"no answer", "101", func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	}, engine.DeliveryPending, "HTTP status 101", 101, 5 * time.Second},
	{"no answer", "closes early", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, engine.DeliveryPending, "EOF", 0, 5 * time.Second},
	{"no answer", "no HTTP", func(w http.ResponseWriter, _ *http.Request) { raw(w, "SSH-2.0-x\r\n") }, engine.DeliveryPending, "malformed HTTP", 0, 5 * time.Second},
	{"no answer", "huge headers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 2*maxHeaders))
	}, engine.DeliveryPending, "exceeded", 0, 5 * time.Second},
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func later(code int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(code)
	}
}

func redirect(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/elsewhere" {
			http.Redirect(w, r, "/elsewhere", code)
		}
	}
}

// slowly sends a byte now and then until nobody reads any more.
func slowly(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, "x"); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		time.Sleep(10 * time.Millisecond)
	}
}

func raw(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = io.WriteString(conn, text)
		time.Sleep(time.Millisecond)
		_ = conn.Close()
	}
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		var i int
		if _, err := fmt.Sscanf(req.URL.Path, "/%d", &i); err == nil {
			answers[i].answer(w, req)
		}
	})
	s := b.sender(b.config())
	var urls []string
	for i := range answers {
		urls = append(urls, fmt.Sprintf("%s/%d", r.URL, i))
	}
	ids := b.tell(urls...)
	b.run(s)
	for i, c := range answers {
		d := b.attempted(ids[i], 1)
		if d.Status != c.status || d.LastStatus != c.http || !strings.Contains(d.LastError, c.reason) || c.reason == "" && d.LastError != "" {
			t.Errorf("%s: %s, HTTP status %d, %q", c.name, d.Status, d.LastStatus, d.LastError)
		}
		if len(d.Response) > maxSnippet {
			t.Errorf("%s: %d bytes of the answer are kept", c.name, len(d.Response))
		}
		wait := d.NextAt.Sub(d.UpdatedAt)
		if c.status == engine.DeliveryPending && (wait < c.wait || wait > max(c.wait+c.wait/5, 20*time.Minute) && c.wait < 20*time.Minute || wait > lastDelay) {
			t.Errorf("%s: the next attempt is in %s, want %s", c.name, wait, c.wait)
		}
		if n := r.count(fmt.Sprintf("/%d", i)); n != 1 {
			t.Errorf("%s: %d requests", c.name, n)
		}
	}
	if r.count("/elsewhere") > 0 {
		t.Error("a redirect was followed")
	}
}

// The table of the documentation has a row for each kind of answer that is tested here.
func TestTableOfAnswers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range answers {
		want := map[engine.DeliveryStatus]string{engine.DeliveryDelivered: "delivered", engine.DeliveryFailed: "failed at once", engine.DeliveryPending: "tried again"}[c.status]
		found := false
		for line := range strings.Lines(string(text)) {
			found = found || strings.HasPrefix(line, "| "+c.row) && strings.Contains(line, want)
		}
		if !found {
			t.Errorf("%s: no row of %q says %q", c.name, c.row, want)
		}
	}
}

func TestNoAnswerInTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	cfg := b.config()
	cfg.Timeout = 100 * time.Millisecond
	id := b.tell(r.URL)[0]
	b.sending(cfg)
	if d := b.attempted(id, 1); d.Status != engine.DeliveryPending || d.LastStatus != 0 || d.LastError != "no answer within 100ms" {
		t.Errorf("got %+v", d)
	}
}

func TestNoConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tls := unstarted(nil) // with a certificate that nobody knows
	tls.StartTLS()
	t.Cleanup(tls.Close)
	closed := newReceiver(t, nil)
	closed.Close()
	cfg := b.config()
	cfg.names = answering(t, func(string) netip.Addr { return netip.Addr{} })
	ids := b.tell(tls.URL, closed.URL, "https://nowhere.test/")
	b.sending(cfg)
	for i, reason := range []string{"certificate", "refused", "no such host"} {
		if d := b.attempted(ids[i], 1); d.Status != engine.DeliveryPending || !strings.Contains(d.LastError, reason) {
			t.Errorf("%s: got %+v", reason, d)
		}
	}
	if n := len(tls.all()); n != 0 {
		t.Errorf("%d requests to a receiver that is not the one it says", n)
	}
}

// Without allow_private nothing is sent to what is not of the public internet, however it is written.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := newReceiver(t, nil)
	port := r.URL[strings.LastIndex(r.URL, ":"):]
	cfg := b.config()
	cfg.AllowPrivate = false
	cfg.names = answering(t, func(name string) netip.Addr {
		return map[string]netip.Addr{
			"inside.test.": netip.MustParseAddr("127.0.0.1"), "metadata.test.": netip.MustParseAddr("169.254.169.254"), "six.test.": netip.MustParseAddr("::1"),
		}[name]
	})
	var urls []string
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "198.18.0.1", "224.0.0.1", "255.255.255.255",
		"[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fd00:ec2::254]", "[fe80::1]", "[ff02::1]", "[::127.0.0.1]",
		"inside.test", "metadata.test", "six.test",
	} {
		urls = append(urls, "http://"+host+port+"/")
	}
	ids := b.tell(urls...)
	b.sending(cfg)
	for i, id := range ids {
		d := b.attempted(id, 1)
		if d.Status != engine.DeliveryFailed || !strings.Contains(d.LastError, "webhooks.allow_private") {
			t.Errorf("%s: %s, %q", urls[i], d.Status, d.LastError)
		}
	}
	if n := len(r.all()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// What a name means is asked anew for each connection, and the address that is dialled is the one that is looked at.
func TestRebinding(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := unstarted(status(500))
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Listener.Close()
	r.Listener = listener
	r.Config.SetKeepAlivesEnabled(false)
	r.Start()
	t.Cleanup(r.Close)
	var address atomic.Value
	address.Store(netip.MustParseAddr("127.0.0.1"))
	cfg := b.config()
	cfg.guard = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.1/32"))) // here it is the public internet
	cfg.names = answering(t, func(string) netip.Addr { return address.Load().(netip.Addr) })
	s := b.sending(cfg)
	id := b.tell(fmt.Sprintf("http://rebinds.test:%d/", listener.Addr().(*net.TCPAddr).Port))[0]
	if d := b.attempted(id, 1); d.LastStatus != 500 {
		t.Fatalf("got %+v", d)
	}
	address.Store(netip.MustParseAddr("127.0.0.2"))
	b.due(s, id)
	if d := b.attempted(id, 2); d.Status != engine.DeliveryFailed || d.LastStatus != 0 {
		t.Errorf("got %+v", d)
	}
	if n := len(r.all()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// answering is a resolver of names by a server of the test's own.
func answering(t testing.TB, address func(name string) netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(dnsAnswer(buf[:n], address), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// dnsAnswer to a query of one question, by RFC 1035.
func dnsAnswer(query []byte, address func(string) netip.Addr) []byte {
	name, at := "", 12
	for query[at] != 0 {
		name += string(query[at+1:at+1+int(query[at])]) + "."
		at += 1 + int(query[at])
	}
	end := at + 5
	kind := binary.BigEndian.Uint16(query[at+1:])
	addr := address(name)
	out := append([]byte(nil), query[:end]...)
	out[2], out[3] = 0x81, 0x80 // an answer, with recursion
	copy(out[6:12], make([]byte, 6))
	if !addr.IsValid() {
		out[3] |= 3 // no such name
		return out
	}
	if addr.Is4() == (kind == 1) && (kind == 1 || kind == 28) {
		out[7] = 1
		out = append(out, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(addr.AsSlice())))
		out = append(out, addr.AsSlice()...)
	}
	return out
}

func TestDelay(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{1: 5 * time.Second, 2: 25 * time.Second, 3: 125 * time.Second, 4: 625 * time.Second, 5: lastDelay, 50: lastDelay} {
		for range 100 {
			if d := delay(n, 0); d < want || d > min(want+want/10, lastDelay) {
				t.Errorf("after %d: %s", n, d)
			}
		}
	}
}

func TestSnippet(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "fine", "a\x00b", "\xff\xfe", strings.Repeat("x", 5000), strings.Repeat("é", 3000), "x" + strings.Repeat("é", 3000), strings.Repeat("€", 3000), strings.Repeat("\x80", 3000)} {
		got := snippet([]byte(body))
		if !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > maxSnippet {
			t.Errorf("%.20q: %d bytes, %.20q", body, len(got), got)
		}
		if strings.HasPrefix(body, "€") && strings.Contains(got, "\uFFFD") {
			t.Error("cut in the middle of a character")
		}
	}
}
