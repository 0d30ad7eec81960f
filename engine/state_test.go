package engine_test

import (
	"context"
	"testing"

	"github.com/pointsman/pointsman/engine"
)

// A document that a step leaves as it was need not be stored again; whatever a step does to it, even in its own memory, is.
func TestStateAsADocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type visit = engine.Visit[raw]
	changes := map[string]struct {
		change func(v *visit)
		want   string
	}{
		"none":                      {func(*visit) {}, `{"n": 1}`},
		"within it":                 {func(v *visit) { v.State[len(v.State)-2] = '2' }, `{"n": 2}`},
		"within what else shows it": {func(v *visit) { v.Instance.State[len(v.State)-2] = '3'; v.State = v.Instance.State }, `{"n": 3}`},
		"another document":          {func(v *visit) { v.State = raw(`{"n":4}`) }, `{"n": 4}`},
		"nothing":                   {func(v *visit) { v.State = nil }, `null`},
	}
	b.serve(steps(t, map[string]step{"begin": func(_ context.Context, v *visit) (engine.Outcome, error) {
		changes[v.Instance.CorrelationKey].change(v)
		return engine.Done(nil), nil
	}}))
	for name, c := range changes {
		id := b.start(engine.NewInstance{Machine: "m", CorrelationKey: name, State: raw(`{"n": 1}`)}).ID
		b.ends(id, engine.StatusDone)
		equal(t, name, string(b.get(id).State), c.want)
	}
}
