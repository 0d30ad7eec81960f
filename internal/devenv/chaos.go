package devenv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	kills       = 12 // of one chaos
	upTimeout   = 30 * time.Second
	upPoll      = 20 * time.Millisecond
	firstStrike = 50 * time.Millisecond // after a part of the traffic began; at random up to
	lastStrike  = time.Second
)

// chaos kills parts with SIGKILL and starts them again, one after the other.
type chaos struct {
	victims []victim
	say     func(format string, args ...any)
	began   time.Time
	struck  int
}

// victim is a part. restart returns when it does its work again.
type victim struct {
	name    string
	restart func(ctx context.Context) error // kills it first
}

// newChaos has each kind of part in turn; what is not ours is left alone.
func (e *environment) newChaos(say func(format string, args ...any)) *chaos {
	c := &chaos{say: say, began: time.Now()}
	c.victims = []victim{
		{partBridge, func(ctx context.Context) error { return e.bridge.restart(ctx, answers(e.cfg.HTTP.Addr)) }},
		{partWorker, func(ctx context.Context) error { return e.worker.restart(ctx, answers(e.cfg.Worker.HTTPAddr)) }},
	}
	if e.postgres != nil {
		c.victims = append(c.victims, victim{partPostgres, func(context.Context) error { return e.postgres.Crash() }})
	}
	if e.natsPart != nil {
		c.victims = append(c.victims, victim{partNATS, func(ctx context.Context) error { return e.natsPart.restart(ctx, connects(e.NATSURL)) }})
	}
	rand.Shuffle(len(c.victims), func(i, j int) { c.victims[i], c.victims[j] = c.victims[j], c.victims[i] })
	return c
}

// strike kills the next part at some moment from now on, and returns when it is up again.
func (c *chaos) strike(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(firstStrike + rand.N(lastStrike-firstStrike)):
	}
	v := c.victims[c.struck%len(c.victims)]
	c.struck++
	at := time.Now()
	if err := v.restart(ctx); err != nil {
		return fmt.Errorf("restart of the killed %s: %w", v.name, err)
	}
	c.say("%7.2f s  kill %2d: %-8s  up again after %d ms", at.Sub(c.began).Seconds(), c.struck, v.name, time.Since(at).Milliseconds())
	return nil
}

// restart kills a child and starts it again.
func (c *child) restart(ctx context.Context, up func(context.Context) error) error {
	c.kill()
	if err := c.start(); err != nil {
		return err
	}
	return until(ctx, up)
}

// until polls something that another process has to bring about.
func until(ctx context.Context, up func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("not up after %s", upTimeout))
	defer cancel()
	for {
		err := up(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(upPoll):
		}
	}
}

// answers asks a program whether it is ready.
func answers(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", resp.Status)
		}
		return nil
	}
}

// connects says whether a NATS server takes connections.
func connects(url string) func(context.Context) error {
	return func(context.Context) error {
		nc, err := nats.Connect(url, nats.Timeout(time.Second))
		if err == nil {
			nc.Close()
		}
		return err
	}
}
