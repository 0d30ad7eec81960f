package bridge

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/engine"
)

func gatherer(size int) *consumer {
	return &consumer{route: &route{Route: Route{Batch: Batch{Size: size, Wait: 5 * time.Millisecond}}, ackWait: time.Minute}}
}

// next takes what has gathered.
func (to counter) next() []delivery {
	<-to.may
	return <-to.out
}

func small() delivery { return delivery{message: &message{body: []byte("x")}} }

// A message that comes alone goes at once; in a flow a batch waits to grow; a full one does not wait.
func TestGatherWaitsOnlyInAFlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, in, gone, out := gatherer(100), make(chan delivery), make(chan struct{}), newCounter()
		go c.gather(in, gone, out)
		began := time.Now()
		in <- small()
		if n := len(out.next()); n != 1 || time.Since(began) != 0 {
			t.Errorf("%d messages after %s, want one at once", n, time.Since(began))
		}
		for range flow { // nobody takes them: they gather
			in <- small()
		}
		if n := len(out.next()); n != flow || time.Since(began) != 0 {
			t.Errorf("%d messages after %s, want %d at once", n, time.Since(began), flow)
		}
		in <- small()
		if n := len(out.next()); n != 1 || time.Since(began) != 5*time.Millisecond {
			t.Errorf("%d messages after %s, want one after the wait", n, time.Since(began))
		}
		for range 100 {
			in <- small()
		}
		synctest.Wait()
		select {
		case in <- small():
			t.Error("a full batch took one more")
		default:
		}
		if n := len(out.next()); n != 100 {
			t.Errorf("%d messages, want 100", n)
		}
		in <- small()
		close(gone)
		if n := len(out.next()); n != 1 {
			t.Errorf("%d messages at the end, want one", n)
		}
	})
}

func TestGatherBoundsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, in, gone, out := gatherer(100), make(chan delivery), make(chan struct{}), newCounter()
		go c.gather(in, gone, out)
		defer close(gone)
		for range 2 {
			in <- delivery{message: &message{body: make([]byte, maxBatchBytes/2)}}
		}
		synctest.Wait()
		select {
		case in <- small():
			t.Error("a batch of the most bytes took one more")
		default:
		}
		if n := len(out.next()); n != 2 {
			t.Errorf("%d messages, want 2", n)
		}
	})
}

// A batch that may go is taken when there is a turn for it, and grows until then.
func TestGatherUntilTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, in, gone, out := gatherer(100), make(chan delivery), make(chan struct{}), newCounter()
		go c.gather(in, gone, out)
		defer close(gone)
		in <- small()
		<-out.may
		for range 3 {
			in <- small()
		}
		if n := len(<-out.out); n != 4 {
			t.Errorf("%d messages, want 4", n)
		}
	})
}

func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, batches, done := gatherer(100), make(chan []delivery), make(chan struct{})
		c.turns = make(chan struct{}, 1)
		offered := func() bool {
			synctest.Wait()
			select {
			case batches <- nil:
				<-done
				return true
			default:
				return false
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		take := func() {
			c.takeNext(ctx, t.Context(), batches)
			done <- struct{}{}
		}
		c.turns <- struct{}{} // another route's
		go take()
		if offered() {
			t.Error("a batch was taken out of turn")
		}
		<-c.turns
		if !offered() {
			t.Error("no batch was taken in its turn")
		}
		c.turns <- struct{}{}
		go take()
		if offered() {
			t.Error("a turn was not given back, or given back twice")
		}
		stop()
		if !offered() {
			t.Error("at the end a batch waits for its turn")
		}
		if len(c.turns) != 1 {
			t.Error("a turn was given back that was another's")
		}
	})
}

// Who waits before he tries again leaves the turn to others.
func TestATurnIsForAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, in, done := gatherer(100), newMemInbox("a"), make(chan error)
		c.turns, c.health, c.inbox, in.err = make(chan struct{}, 1), newHealth(slog.New(slog.DiscardHandler)), in, errors.New("away")
		over := c.turn(t.Context())
		go func() {
			_, err := c.accept(t.Context(), t.Context(), []engine.Intake{{To: engine.ByKey("default", "a"), Name: "n"}}, over)
			done <- err
		}()
		synctest.Wait()
		if len(c.turns) != 0 {
			t.Error("the turn is kept between two attempts")
		}
		c.turns <- struct{}{} // another route's
		time.Sleep(time.Minute)
		in.do(func() {
			if in.err = nil; in.attempts != 1 {
				t.Errorf("%d attempts, want one in its turn", in.attempts)
			}
		})
		<-c.turns
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(c.turns) != 0 || in.calls != 1 {
			t.Errorf("%d turns are taken, %d batches", len(c.turns), in.calls)
		}
	})
}
