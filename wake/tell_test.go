package wake_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/wake"
)

// hear returns what is told of topic, as another process would get it.
func (b bundle) hear(t *testing.T, topic string) (told <-chan uuid.UUID, stop func()) {
	t.Helper()
	other := wake.New(b.server.Conn(t), b.space)
	t.Cleanup(other.Close)
	c := make(chan uuid.UUID, 100_000)
	stop, err := other.Hear(topic, func(ids []uuid.UUID) {
		for _, id := range ids {
			c <- id
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c, stop
}

// numbered is an id that says which.
func numbered(n int) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func ids(from, to int) (ids []uuid.UUID) {
	for n := from; n < to; n++ {
		ids = append(ids, numbered(n))
	}
	return ids
}

func next(t *testing.T, c <-chan uuid.UUID) uuid.UUID {
	t.Helper()
	select {
	case id := <-c:
		return id
	case <-time.After(patience):
		t.Fatal("nothing is told")
		return uuid.UUID{}
	}
}

// All ids arrive, in their order, under their topic, in few messages.
func TestTell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ended, _ := b.hear(t, "ended")
	changed, _ := b.hear(t, "changed")
	before := b.nc.Stats().OutMsgs
	const n, group = 20_000, 200
	for i := 0; i < n; i += group {
		all := ids(i, i+group)
		b.wake.Tell("ended", all)
		clear(all) // it is the caller's
	}
	b.wake.Tell("changed", ids(n, n+1))
	b.wake.Close() // what was told before goes out
	for i := range n {
		if id := next(t, ended); id != numbered(i) {
			t.Fatalf("told of %s, want number %d", id, i)
		}
	}
	if id := next(t, changed); id != numbered(n) {
		t.Errorf("told of %s", id)
	}
	if got := b.nc.Stats().OutMsgs - before; got > n/group+1 {
		t.Errorf("%d messages for %d groups", got, n/group)
	}
}

// However many groups are told of, few notices are published.
func TestNoticesAreCoalesced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	told, _ := b.hear(t, "ended")
	before, begin := b.nc.Stats().OutMsgs, time.Now()
	for i := range 2000 {
		b.wake.Tell("ended", ids(i, i+1))
	}
	b.wake.Close()
	windows := uint64(time.Since(begin)/(5*time.Millisecond)) + 2 // and one by Close
	for i := range 2000 {
		if id := next(t, told); id != numbered(i) {
			t.Fatalf("told of %s, want number %d", id, i)
		}
	}
	if n := b.nc.Stats().OutMsgs - before; n > windows+2000/1024 {
		t.Errorf("%d notices, want at most %d", n, windows)
	}
}

// What nobody can be told of now is forgotten, and there is a bound to what is told at once.
func TestTellWithoutNATS(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.nc.Stats().OutMsgs
	b.server.Down(t)
	b.nc.Close()
	b.wake.Tell("ended", ids(0, 100_000))
	b.wake.Close()
	b.wake.Tell("ended", ids(0, 100_000))
	if n := b.nc.Stats().OutMsgs - before; n != 0 {
		t.Errorf("%d notices published", n)
	}
	if _, err := b.wake.Hear("ended", func([]uuid.UUID) {}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("hear: %v", err)
	}
	b.server.Up(t)
}

func TestHearBadNotices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	told, stop := b.hear(t, "ended")
	for _, body := range []string{"", "short", string(make([]byte, 17))} {
		if err := b.nc.Publish(b.space.Notice("ended"), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	b.wake.Tell("ended", ids(7, 8))
	if got := fmt.Sprint(next(t, told), next(t, told)); got != fmt.Sprint(numbered(0), numbered(7)) {
		t.Errorf("told of %s", got)
	}
	stop()
	stop()
	witness, _ := b.hear(t, "ended")
	b.wake.Tell("ended", ids(8, 9))
	next(t, witness)
	if len(told) != 0 {
		t.Error("told after stop")
	}
}

// BenchmarkTell is what it costs who commits a group of 200 to tell of it, with nobody to hear it, when a notice holds what 16 groups tell.
func BenchmarkTell(b *testing.B) {
	x := setup(b)
	group := ids(0, 200)
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		x.wake.Tell("changed", group)
		if i%16 == 0 {
			b.StopTimer()
			time.Sleep(5 * time.Millisecond)
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(x.nc.Stats().OutMsgs)/float64(b.N), "msgs/op")
}
