package api

import (
	"context"
	"iter"
)

// Watch yields an instance as it is, then each time that it is seen to have changed, and ends with its end, or with an error. ctx ends it too.
func (a *API) Watch(ctx context.Context, project string, r RefRequest) iter.Seq2[Instance, error] {
	return func(yield func(Instance, error) bool) {
		ref, err := refOf(project, r.Ref)
		if err != nil {
			yield(Instance{}, err)
			return
		}
		for in, err := range a.Client.Watch(ctx, ref) {
			if !yield(instanceOf(in), err) {
				return
			}
		}
	}
}

// Ended says that an instance stays as it is, but for a retry.
func (in Instance) Ended() bool { return !in.Status.Live() }
