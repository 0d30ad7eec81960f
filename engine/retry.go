package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// RetryPolicy says how often and when a step that failed runs again.
type RetryPolicy struct {
	MaxAttempts int           // executions of one step; zero: 5
	Initial     time.Duration // before the second; zero: 1s
	Max         time.Duration // zero: 5m
	Factor      float64       // by which the delay grows; zero: 2
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 5
	}
	if p.Initial == 0 {
		p.Initial = time.Second
	}
	if p.Max == 0 {
		p.Max = 5 * time.Minute
	}
	if p.Factor == 0 {
		p.Factor = 2
	}
	return p
}

func (p RetryPolicy) check() error {
	if p.MaxAttempts < 1 || p.Initial < 0 || p.Max < p.Initial || !(p.Factor >= 1) { // NaN too
		return fmt.Errorf("retry: want max attempts of 1 or more, 0 <= initial <= max, and a factor of 1 or more, not %+v", p)
	}
	return nil
}

// delay after the execution that had this attempt number, 0 at first: Initial * Factor^attempt, at most Max, ±20 %.
func (p RetryPolicy) delay(attempt int) time.Duration {
	d := math.Min(float64(p.Initial)*math.Pow(p.Factor, float64(attempt)), float64(p.Max))
	return time.Duration(d * (0.8 + 0.4*rand.Float64()))
}
