package devenv

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/natstest"
)

func TestOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"leave --config out":     {Traffic: 1, Config: "own.yaml"},
		"--exit ends":            {Exit: true},
		"--chaos kills":          {Chaos: true},
		"want the number":        {Traffic: -1},
		"say how much with --tr": {Exit: true, Chaos: true},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", o, err, want)
		}
	}
	if err := (Options{Traffic: 1, Exit: true, Chaos: true, DataDir: "x"}).Check(); err != nil {
		t.Error(err)
	}
}

func TestFreeAddr(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()
	got := freeAddr(taken)
	if host, port, err := net.SplitHostPort(got); err != nil || host != "127.0.0.1" || port == "0" || got == taken {
		t.Errorf("for %s, which is taken, got %q: want another port there", taken, got)
	}
	if got := freeAddr("no address"); got != "" {
		t.Errorf("got %q for no address", got)
	}
}

// TestPartEndsWithItsParent: a part that nobody can stop any more stops when the other end of its standard input is gone.
func TestPartEndsWithItsParent(t *testing.T) {
	t.Parallel()
	addr := freeAddr("127.0.0.1:0")
	l, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	parent, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- RunPart(t.Context(), PartOptions{Part: partNATS, Dir: t.TempDir(), Port: l.Port, Log: slog.New(slog.DiscardHandler), In: parent})
	}()
	if err := until(t.Context(), connects("nats://"+addr)); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(90 * time.Second):
		t.Fatal("it still runs")
	}
}

// TestPublishReadsBack: every copy is in the stream under its id, or was dropped there as a duplicate.
func TestPublishReadsBack(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js := server.JetStream(t)
	tr := newTraffic(30, 1)
	for stream, subject := range map[string]string{"ORDERS": "orders.>", "PAYMENTS": "payments.>"} {
		makeStream(t, js, stream, subject)
	}
	p := newPublisher(js)
	if err := p.publish(t.Context(), tr.first); err != nil {
		t.Fatal(err)
	}
	if err := p.publish(t.Context(), tr.second); err != nil {
		t.Fatal(err)
	}
	a := &audit{js: js, from: map[string]uint64{"ORDERS": 1, "PAYMENTS": 1}}
	for _, stream := range []string{"ORDERS", "PAYMENTS"} {
		if err := a.readStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for _, m := range a.stored {
		seen[m.copyID]++
	}
	for _, e := range tr.events {
		for n := range e.copies {
			id := shopCopy{e, n}.id()
			if stored, dropped := seen[id], p.dropped[id]; stored+btoi(dropped) != 1 {
				t.Errorf("copy %s of %s: stored %d times, dropped: %v", id, e.msgID, stored, dropped)
			}
		}
	}
	if got, want := int(p.sent.Load()), len(tr.first)+len(tr.second); got != want || len(p.dropped) == 0 {
		t.Errorf("%d of %d are out, %d dropped", got, want, len(p.dropped))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func makeStream(t *testing.T, js jetstream.JetStream, name, subject string) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
		t.Fatal(err)
	}
}
