package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Machine is a version of a machine that a worker serves.
type Machine struct {
	Name    string
	Version int
	Start   string
	Queue   string
	// Validators are the updates that are validated where it is served.
	Validators []string
}

// Register makes machine versions known to starts that name none, and to updates.
func (s *Store) Register(ctx context.Context, machines []Machine) error {
	names, starts, queues, versions := make([]string, len(machines)), make([]string, len(machines)), make([]string, len(machines)), make([]int32, len(machines))
	validators := make([]string, len(machines))
	for i, m := range machines {
		names[i], versions[i], starts[i], queues[i], validators[i] = m.Name, int32(m.Version), m.Start, m.Queue, textArray(m.Validators)
	}
	return s.together(ctx, statement{"register", s.text.register, []any{names, versions, starts, queues, validators}, nil})
}

const registerText = `
insert /* register */ into pointsman.machines (name, version, start, queue, validators)
select name, version, start, queue, validators::text[] from unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[]) t(name, version, start, queue, validators) order by 1, 2
on conflict (name, version) do update set start = excluded.start, queue = excluded.queue, validators = excluded.validators
where (machines.start, machines.queue, machines.validators) <> (excluded.start, excluded.queue, excluded.validators)`

// Content notes the content of machine versions whose content is not known, and returns those that are known with another.
func (s *Store) Content(ctx context.Context, machines []Machine, hashes []string) (other []Machine, err error) {
	names, starts, queues, versions := make([]string, len(machines)), make([]string, len(machines)), make([]string, len(machines)), make([]int32, len(machines))
	for i, m := range machines {
		names[i], versions[i], starts[i], queues[i] = m.Name, int32(m.Version), m.Start, m.Queue
	}
	err = s.each(ctx, "content", s.text.content, func(r pgx.Rows) error {
		var m Machine
		err := r.Scan(&m.Name, &m.Version)
		other = append(other, m)
		return err
	}, names, versions, starts, queues, hashes)
	return other, err
}

// contentText (arrays: $1 names, $2 versions, $3 starts, $4 queues, $5 hashes) writes each row where it says nothing yet, which locks it: who
// comes second sees what the first has written.
const contentText = `
with /* content */ n as materialized (
  select * from unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[]) t(name, version, start, queue, hash) order by 1, 2
), w as (
  insert into pointsman.machines as m (name, version, start, queue, content_hash) select name, version, start, queue, hash from n
  on conflict (name, version) do update set content_hash = coalesce(m.content_hash, excluded.content_hash)
  returning m.name, m.version, m.content_hash
)
select w.name, w.version from w join n using (name, version) where w.content_hash <> n.hash order by 1, 2`

// Validated says whether who serves a machine version said that it validates this update.
func (s *Store) Validated(ctx context.Context, machine string, version int, update string) (validated bool, err error) {
	err = s.each(ctx, "validated", s.text.validated, func(r pgx.Rows) error { return r.Scan(&validated) }, machine, version, update)
	return validated, err
}

const validatedText = `select /* validated */ $3 = any(validators) from pointsman.machines where name = $1 and version = $2`
