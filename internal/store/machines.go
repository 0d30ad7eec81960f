package store

import "context"

// Machine is a version of a machine that a worker serves.
type Machine struct {
	Name    string
	Version int
	Start   string
	Queue   string
}

// Register makes machine versions known to starts that name none.
func (s *Store) Register(ctx context.Context, machines []Machine) error {
	names, starts, queues, versions := make([]string, len(machines)), make([]string, len(machines)), make([]string, len(machines)), make([]int32, len(machines))
	for i, m := range machines {
		names[i], versions[i], starts[i], queues[i] = m.Name, int32(m.Version), m.Start, m.Queue
	}
	return s.together(ctx, statement{"register", s.text.register, []any{names, versions, starts, queues}, nil})
}

const registerText = `
insert /* register */ into pointsman.machines (name, version, start, queue)
select * from unnest($1::text[], $2::int[], $3::text[], $4::text[]) order by 1, 2
on conflict (name, version) do update set start = excluded.start, queue = excluded.queue
where (machines.start, machines.queue) <> (excluded.start, excluded.queue)`
