package bridge

import (
	"context"

	"github.com/pointsman/pointsman/engine"
)

// Prober says what is on record of many intakes, and what would become of them now; an [engine.Client] is one.
type Prober interface {
	LookAll(ctx context.Context, batch []engine.Intake) ([]engine.Record, error)
}

// probed is what a route makes of a message as it is now, and what is on record of each of its intakes.
type probed struct {
	*message
	mapping
	records []engine.Record
}

// probe maps messages, and asks for all of their intakes together.
func probe(ctx context.Context, rt *route, p Prober, messages []*message) ([]probed, error) {
	out := make([]probed, len(messages))
	var intakes []engine.Intake
	for i, m := range messages {
		out[i] = probed{message: m, mapping: rt.mapMessage(m)}
		intakes = append(intakes, out[i].intakes...)
	}
	records, err := p.LookAll(ctx, intakes)
	if err != nil {
		return nil, err
	}
	for i := range out {
		n := len(out[i].intakes)
		out[i].records, records = records[:n], records[n:]
	}
	return out, nil
}
