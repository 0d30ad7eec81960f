package bridge

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retry calls op until it succeeds or ctx is done; op runs at least once. Whatever waits for NATS or Postgres waits here: report is
// told of each failure, and nil when they are over, so that there is one level of backoff and readiness knows the reason.
func retry[T any](ctx context.Context, report func(error), op func() (T, error)) (T, error) {
	v, err := op()
	if err == nil { // as for nearly every message
		return v, nil
	}
	b := backoff.NewExponentialBackOff() // with jitter
	b.InitialInterval = 100 * time.Millisecond
	b.MaxInterval = 5 * time.Second
	failed := false
	v, err = backoff.Retry(ctx, func() (T, error) {
		if !failed {
			return v, err
		}
		return op()
	},
		backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) { failed = true; report(err) }))
	if err == nil && failed {
		report(nil)
	}
	return v, err
}

// doubling is first · 2ⁿ, at most limit.
func doubling(first, limit time.Duration, n int) time.Duration {
	d := first
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}
