package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Server is what a Postgres server says of itself.
type Server struct {
	Version  int // as server_version_num has it
	Standby  bool
	Now      time.Time
	Settings map[string]string // those that durability and the pace of the tables depend on
	// Oldest is how long the oldest snapshot has been kept: by a transaction, prepared or not.
	Oldest time.Duration
	// OldestBy is the process that keeps it; 0: a prepared transaction, or nobody.
	OldestBy int
	// Slots are replication slots that keep dead rows and are not read.
	Slots []string
}

// ReadServer asks a server. Sessions of other users are seen only with the rights of pg_read_all_stats.
func ReadServer(ctx context.Context, db *pgxpool.Pool) (s Server, err error) {
	var names, values []string
	var oldest float64
	row := db.QueryRow(ctx, readServerText, pgx.QueryExecModeExec)
	err = row.Scan(&s.Version, &s.Standby, &s.Now, &names, &values, &oldest, &s.OldestBy, &s.Slots)
	s.Settings, s.Oldest = map[string]string{}, time.Duration(oldest*float64(time.Second))
	for i, name := range names {
		s.Settings[name] = values[i]
	}
	return s, err
}

const readServerText = `
with settings as (
  select name, setting from pg_settings
  where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts')
), snapshots as (
  select extract(epoch from clock_timestamp() - xact_start)::float8 as age, pid from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid() and xact_start is not null
  union all
  select extract(epoch from clock_timestamp() - prepared)::float8, 0 from pg_prepared_xacts
), oldest as (
  select age, pid from snapshots order by age desc limit 1
)
select /* read server */ current_setting('server_version_num')::int, pg_is_in_recovery(), clock_timestamp(),
  array(select name from settings order by name), array(select setting from settings order by name),
  coalesce((select age from oldest), 0)::float8, coalesce((select pid from oldest), 0)::int,
  array(select slot_name::text from pg_replication_slots where not active and coalesce(xmin, catalog_xmin) is not null order by 1)`
