package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// remoteSlots are the requests in flight.
const remoteSlots = 64

// remoteSteps is a cycle whose step is asked for over NATS, beside one whose step is Go code in the worker.
func remoteSteps(ctx context.Context, b *run) error {
	rs := &remotes{run: b}
	if err := b.runParts(ctx, b.config(remoteSlots), partService, partBridge, partWorker); err != nil {
		return err
	}
	c := &Case{
		Name: "remote", Unit: "cycle", About: fmt.Sprintf("%s. %d steps at once", b.aboutCycles(), remoteSlots),
	}
	return b.alternate(ctx, c,
		side{"remote", "the step is answered by a service over NATS", rs.path(machineRemote)},
		side{"go", "the step is Go code in the worker", rs.path(machineCycle)},
		side{"requests", fmt.Sprintf("NATS alone: as many requests to the same service, %d at once", remoteSlots), rs.requests},
	)
}

type remotes struct{ *run }

func (rs *remotes) path(machine string) probe {
	return func(ctx context.Context, m *measurement) error {
		cy := &cycles{run: rs.run}
		var err error
		if cy.parked, err = rs.park(ctx, schema, machine, rs.Parked, false); err != nil {
			return err
		}
		return cy.path(ctx, m)
	}
}

// requests are as large as those of the steps without their inbox.
func (rs *remotes) requests(ctx context.Context, m *measurement) error {
	body, subject := []byte(benchState), rs.space.Step(machineRemote, stepGo)
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := each(remoteSlots, make([]struct{}, rs.N), func(int, struct{}) error {
		answer, err := rs.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: body})
		if err == nil && len(answer.Data) == 0 {
			err = errors.New("an empty answer")
		}
		return err
	}); err != nil {
		return err
	}
	return m.end(ctx, rs.N)
}
