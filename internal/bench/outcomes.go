package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/migrations"
)

// outcomes is what waits in the outbox on its way into the stream.
func outcomes(ctx context.Context, b *run) error {
	if err := b.makeLimits(ctx); err != nil {
		return err
	}
	if err := b.runParts(ctx, b.config(1), partBridge); err != nil {
		return err
	}
	out := &outgoing{run: b}
	c := &Case{
		Name: "outcomes", Unit: "outcome",
		About: fmt.Sprintf("%d outcomes of as many instances are in the outbox at once, until all are in their stream and none is left in the outbox", b.N),
	}
	return b.alternate(ctx, c,
		side{"path", "Postgres, bridge, JetStream", out.path},
		side{"relay", fmt.Sprintf("least code: read 500, publish all, delete 500, at %d connections", b.Conns), out.relay},
		side{"publish", "JetStream alone: the same messages, published asynchronously", out.publishAlone},
	)
}

type outgoing struct{ *run }

func (out *outgoing) path(ctx context.Context, m *measurement) error {
	if err := out.sweep(ctx); err != nil {
		return err
	}
	// The rows as a commit writes them. Their transaction stays open until the clock runs: the relay polls.
	tx, err := out.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit it does nothing
	if _, err := tx.Exec(ctx, migrations.Qualify(`
insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, body)
select get_byte(uuid_send(id), 15) & 15, 'outcome', id, 'default', '`+machineLast+`.done', id || ':1',
  convert_to(json_build_object('instance_id', id, 'machine', '`+machineLast+`', 'version', 1, 'status', 'done', 'correlation_key', 'order-' || lpad(g::text, 9, '0'), 'result', null, 'reason', null)::text, 'UTF8')
from (select g, gen_random_uuid() as id from generate_series(1, $1::int) g offset 0) x`, schema), pgx.QueryExecModeExec, out.N); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if err := out.nc.Publish(out.space.Wake(engine.OutboxQueue), nil); err != nil {
		return err
	}
	if err := errors.Join(out.outcomesStored(ctx, out.N), out.outboxEmpty(ctx)); err != nil {
		return err
	}
	return m.end(ctx, out.N)
}

func (out *outgoing) relay(ctx context.Context, m *measurement) error {
	if err := errors.Join(out.sweep(ctx), out.emptyLimits(ctx)); err != nil {
		return err
	}
	sessions, stop, err := out.limits(ctx, out.Conns)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := out.db.Exec(ctx, `
insert into `+limitSchema+`.outbox (owner, msg_id, body)
select g % $2::int, gen_random_uuid() || ':1', convert_to(json_build_object('instance_id', gen_random_uuid(), 'machine', 'last', 'version', 1, 'status', 'done', 'correlation_key', 'order-' || lpad(g::text, 9, '0'), 'result', null, 'reason', null)::text, 'UTF8')
from generate_series(1, $1::int) g`, out.N, out.Conns); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := each(out.Conns, shuffled(out.Conns), func(conn, owner int) error {
		for {
			if n, err := sessions[conn].relay(ctx, out.js, owner-1, 500); err != nil || n == 0 {
				return err
			}
		}
	}); err != nil {
		return err
	}
	if err := m.end(ctx, out.N); err != nil {
		return err
	}
	return out.published(ctx)
}

func (out *outgoing) published(ctx context.Context) error {
	n, err := out.stored(ctx, streamOut)
	if err == nil && n != out.N {
		err = fmt.Errorf("%d messages of the limit, want %d", n, out.N)
	}
	return err
}

func (out *outgoing) publishAlone(ctx context.Context, m *measurement) error {
	if err := out.sweep(ctx); err != nil {
		return err
	}
	l := newLoad(shuffled(out.N))
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := out.publish(ctx, out.N, func(i int) *nats.Msg { return out.message(l, i, subjectOut) }); err != nil {
		return err
	}
	if err := m.end(ctx, out.N); err != nil {
		return err
	}
	return out.published(ctx)
}
