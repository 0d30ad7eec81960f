package remote_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/internal/natstest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	enginetest.Conformance(t, func(t testing.TB, s enginetest.Script) *engine.Machine {
		server := natstest.Start(t)
		answer(t, server.Conn(t), s.Name, func(m *nats.Msg) *nats.Msg {
			var r enginetest.Request
			// A field that the suite does not know, or one that is missing, is not what was agreed upon.
			dec := json.NewDecoder(bytes.NewReader(m.Data))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&r); err != nil {
				t.Errorf("request %s: %v", m.Data, err)
				return nil
			}
			return &nats.Msg{Data: encode(t, s.Steps[r.Step](r))}
		})
		cfg := config(t, server.Conn(t))
		cfg.Name, cfg.Version, cfg.Start, cfg.Queue, cfg.Retry = s.Name, s.Version, s.Start, s.Queue, s.Retry
		return machine(t, cfg)
	})
}
