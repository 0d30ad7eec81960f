package flow

import (
	"context"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/dag"
)

// callState is what a call that runs as an instance of its own keeps.
type callState struct {
	dag.Request
	Tries   int `json:"tries"`   // that have failed
	Replays int `json:"replays"` // executions that came to an outcome; what Instance.Attempt has beyond are workers that were lost
}

// maxLost is how many executions may be lost with their workers before it is the step that is blamed.
const maxLost = 5

// step asks once.
func (c *caller) step(ctx context.Context, v *engine.Visit[callState]) (engine.Outcome, error) {
	if n := v.Instance.Attempt - v.State.Replays; n >= maxLost {
		return engine.Stop(fmt.Sprintf("%d executions and no answer", n)), nil
	}
	out, err := c.ask(ctx, &v.State.Request, v.Traceparent())
	if errors.Is(err, errAway) {
		v.State.Replays++
		return engine.Replay(awayDelay), nil
	}
	if err != nil {
		return engine.Outcome{}, err
	}
	return engine.Done(out), nil
}

// callFailed is the retry policy of the step.
func callFailed(_ context.Context, v *engine.Visit[callState], cause error) engine.Outcome {
	v.State.Tries++
	v.State.Replays++
	if isFinal(cause) || v.State.Tries >= v.State.Retry.MaxAttempts {
		return engine.Stop(cause.Error())
	}
	return engine.Replay(delay(v.State.Retry, v.State.Tries-1))
}
