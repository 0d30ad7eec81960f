package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Instance is a row of v_instances.
type Instance struct {
	ID             uuid.UUID
	Project        string
	Machine        string
	Version        int
	Status         string
	Step           string
	Attempt        int
	CorrelationKey string
	Queue          string
	Priority       int16
	PartitionKey   string
	UniqueKey      string
	UniqueScope    int16 // bits, as in the table
	State          []byte
	Awaits         []string
	Deadline       *time.Time
	RunAt          *time.Time
	Result         []byte
	LastError      string
	Paused         bool
	InboxCount     int
	InsertedAt     time.Time
	UpdatedAt      time.Time
	FinishedAt     *time.Time
	LeaseWorker    string
	LeaseExpiresAt *time.Time
	ParentID       uuid.UUID
}

// Get returns an instance by id, of any project where project is "".
func (s *Store) Get(ctx context.Context, project string, id uuid.UUID) (Instance, bool, error) {
	return s.get(ctx, s.text.getID, id, project)
}

// GetByKey returns the live instance that has the key, else the last one that had it.
func (s *Store) GetByKey(ctx context.Context, project, key string) (Instance, bool, error) {
	return s.get(ctx, s.text.getKey, project, key)
}

func (s *Store) get(ctx context.Context, sql string, args ...any) (in Instance, found bool, err error) {
	err = s.each(ctx, "get", sql, func(r pgx.Rows) (err error) {
		in, err = scanInstance(r)
		found = true
		return err
	}, args...)
	return in, found, err
}

// Instances returns those of the instances that there are, the newest first.
func (s *Store) Instances(ctx context.Context, ids []uuid.UUID) ([]Instance, error) {
	ins := make([]Instance, 0, len(ids))
	err := s.each(ctx, "instances", s.text.instancesByID, func(r pgx.Rows) error {
		in, err := scanInstance(r)
		ins = append(ins, in)
		return err
	}, ids)
	return ins, err
}

// Standing is what there is to know of an instance before it is worth reading.
type Standing struct {
	Project string
	Ended   bool
}

// Standings returns the standing of those of the instances that there are. It is far cheaper than [Store.Instances].
func (s *Store) Standings(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Standing, error) {
	return s.standings(ctx, "standings", s.text.standings, ids)
}

func (s *Store) standings(ctx context.Context, name, sql string, ids []uuid.UUID) (map[uuid.UUID]Standing, error) {
	standings := make(map[uuid.UUID]Standing, len(ids))
	err := s.each(ctx, name, sql, func(r pgx.Rows) error {
		var id uuid.UUID
		var st Standing
		err := r.Scan(&id, &st.Project, &st.Ended)
		standings[id] = st
		return err
	}, ids)
	return standings, err
}

func scanInstance(r pgx.Rows) (in Instance, err error) {
	var key, partition, unique, lastError, worker *string
	var parent *uuid.UUID
	err = r.Scan(&in.ID, &in.Project, &in.Machine, &in.Version, &in.Status, &in.Step, &in.Attempt, &key, &in.Queue, &in.Priority, &partition, &unique, &in.UniqueScope,
		&in.State, &in.Awaits, &in.Deadline, &in.RunAt, &in.Result, &lastError, &in.Paused, &in.InboxCount, &in.InsertedAt, &in.UpdatedAt, &in.FinishedAt,
		&worker, &in.LeaseExpiresAt, &parent)
	if parent != nil {
		in.ParentID = *parent
	}
	in.CorrelationKey, in.PartitionKey, in.UniqueKey, in.LastError, in.LeaseWorker = value(key), value(partition), value(unique), value(lastError), value(worker)
	return in, err
}

const instanceColumns = `id, project, machine, version, status, step, attempt, correlation_key, queue, priority, partition_key, unique_key, unique_scope_bits, state, awaits, deadline, run_at, result,
  last_error, paused, inbox_count, inserted_at, updated_at, finished_at, lease_worker, lease_expires_at, parent_id`

const getIDText = `select /* get */ ` + instanceColumns + ` from pointsman.v_instances where id = $1 and (project = $2 or $2 = '')`

const getKeyText = `
select /* get by key */ ` + instanceColumns + ` from pointsman.v_instances where id = coalesce(
  (select id from pointsman.instances where project = $1 and correlation_key = $2 and live),
  (select id from pointsman.instances where project = $1 and correlation_key = $2 and not live order by finished_at desc limit 1))`

const standingsText = `select /* standings */ id, project, not live from pointsman.instances where id = any($1)`

// QueueDepth is what waits in a queue.
type QueueDepth struct {
	Queue  string
	Ready  int           // at most MaxDepth
	Oldest time.Duration // how long the one that is next has been ready
}

// MaxDepth is where counting stops.
const MaxDepth = 10000

// QueueDepths looks at the queues' own lanes.
func (s *Store) QueueDepths(ctx context.Context, queues []string) (depths []QueueDepth, err error) {
	err = s.each(ctx, "queue depths", s.text.queueDepths, func(r pgx.Rows) error {
		var d QueueDepth
		err := r.Scan(&d.Queue, &d.Ready, &d.Oldest)
		depths = append(depths, d)
		return err
	}, queues, MaxDepth)
	return depths, err
}

const queueDepthsText = `
select /* queue depths */ q.queue,
  (select count(*) from (select from pointsman.ready r where r.queue = q.queue and r.lane = '' limit $2) x),
  coalesce(now() - (select r.run_at from pointsman.ready r where r.queue = q.queue and r.lane = '' order by priority, run_at limit 1), '0 s')
from unnest($1::text[]) q(queue)`
