package wake_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
	"github.com/pointsman/pointsman/wake"
)

// patience is how long a test waits for what should come at once.
const patience = 90 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bundle struct {
	server *natstest.Server
	nc     *nats.Conn
	space  subjects.Space
	wake   *wake.Wake
}

func setup(t testing.TB) bundle {
	t.Helper()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t)
	nc := s.Conn(t)
	w := wake.New(nc, space)
	t.Cleanup(w.Close)
	return bundle{s, nc, space, w}
}

// listen returns the pokes of queues as another process would get them.
func (b bundle) listen(t *testing.T, queues ...string) <-chan string {
	t.Helper()
	nc := b.server.Conn(t)
	other := wake.New(nc, b.space)
	t.Cleanup(other.Close)
	got := make(chan string, 1000)
	stop, err := other.Listen(queues, func(q string) { got <- q })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := nc.Flush(); err != nil { // the server knows of the subscription
		t.Fatal(err)
	}
	return got
}

func receive(t *testing.T, c <-chan string) string {
	t.Helper()
	select {
	case q := <-c:
		return q
	case <-time.After(patience):
		t.Fatal("no poke")
		return ""
	}
}

func TestPokeReachesItsQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.listen(t, "mail", "bulk", "mail")
	b.wake.Wake([]string{"nobodys"})
	b.wake.Wake([]string{"bulk"})
	if q := receive(t, got); q != "bulk" {
		t.Errorf("got %q", q)
	}
	b.wake.Wake([]string{"mail"})
	if q := receive(t, got); q != "mail" {
		t.Errorf("got %q", q)
	}
}

// However often a queue is woken, few pokes are published, and one of them after the last call.
func TestPokesAreCoalesced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.listen(t, "busy")
	before, begin := b.nc.Stats().OutMsgs, time.Now()
	b.wake.Wake([]string{"busy"})
	receive(t, got)
	for range 10_000 {
		b.wake.Wake([]string{"busy"})
	}
	receive(t, got)
	b.wake.Close()
	windows := uint64(time.Since(begin)/(5*time.Millisecond)) + 2
	if n := b.nc.Stats().OutMsgs - before; n < 2 || n > windows {
		t.Errorf("%d pokes, want 2 to %d", n, windows)
	}
}

func TestWakeWithoutNATS(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Down(t)
	before := b.nc.Stats().OutMsgs
	b.nc.Close()
	b.wake.Wake([]string{"mail"})
	b.wake.Close()
	b.wake.Close()
	b.wake.Wake([]string{"mail"})
	if n := b.nc.Stats().OutMsgs - before; n != 0 {
		t.Errorf("%d pokes published", n)
	}
	if _, err := b.wake.Listen([]string{"mail"}, func(string) {}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("listen: %v", err)
	}
	b.server.Up(t)
}

func TestStopIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := make(chan string, 1000)
	stop, err := b.wake.Listen([]string{"mail"}, func(q string) { got <- q })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Publish(b.space.Wake("mail"), nil); err != nil {
		t.Fatal(err)
	}
	receive(t, got)
	stop()
	stop()
	witness := b.listen(t, "mail")
	if err := b.nc.Publish(b.space.Wake("mail"), nil); err != nil {
		t.Fatal(err)
	}
	receive(t, witness)
	if n := len(got); n != 0 {
		t.Errorf("%d pokes after stop", n)
	}
}

// Pokes that come while nobody has time for one are no reason for the connection to complain.
func TestPokesWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	complaints := make(chan error, 10)
	b.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { complaints <- err })
	busy, began := make(chan struct{}), make(chan string, 2000)
	stop, err := b.wake.Listen([]string{"mail"}, func(q string) { began <- q; <-busy })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	t.Cleanup(func() { close(busy) })
	last, err := b.nc.SubscribeSync("last")
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := b.nc.Publish(b.space.Wake("mail"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.nc.Publish("last", nil); err != nil {
		t.Fatal(err)
	}
	receive(t, began)
	if _, err := last.NextMsg(patience); err != nil { // so all pokes are there
		t.Fatal(err)
	}
	select {
	case err := <-complaints:
		t.Error(err)
	default:
	}
}
