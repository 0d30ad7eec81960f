package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TagChildren is the tag of every end of a child. An await of children has it, and beside it the tag of how many.
const TagChildren = "child/*"

// ofChildren: the tag is of an await of children.
func ofChildren(tag string) bool { return strings.HasPrefix(tag, "child/") }

// tag is what an await names.
const tag = `(case s.kind when 'child' then '` + TagChildren + `' else s.kind || '/' || s.name end)`

// passes: the payload of signal s passes the condition that an await has for its name. What cannot be evaluated does not pass.
func passes(where string) string {
	return `(case when s.kind = 'signal' and ` + where + ` ? s.name then coalesce(jsonb_path_match_tz(s.payload, (` + where + `->>s.name)::jsonpath, '{}', true), false) else true end)`
}

// Recheck wakes those of the instances, all locked by this transaction, that are parked on enough signals of which one was not
// handed to the step that parked; it returns their queues. It has to be a later statement than the one that locked them, for its
// snapshot, and inside [Store.InScopes], for their unique keys.
func (s *Store) Recheck(ctx context.Context, instances []uuid.UUID) (woken map[uuid.UUID]string, err error) {
	return s.wakeParked(ctx, "recheck", s.text.recheck, instances, append([]uuid.UUID{}, s.starting...), instances)
}

// wakeParked runs a statement that wakes.
func (s *Store) wakeParked(ctx context.Context, name, sql string, args ...any) (woken map[uuid.UUID]string, err error) {
	woken = map[uuid.UUID]string{}
	err = s.each(ctx, name, sql, func(r pgx.Rows) error {
		var id uuid.UUID
		var queue string
		var moved bool
		err := r.Scan(&id, &queue, &moved)
		woken[id] = queue
		if moved {
			s.moved = append(s.moved, id)
		}
		return err
	}, args...)
	return woken, err
}

// recheckText ($1 ids, $2 those of them that this transaction will start children of yet, $3 those that may await children). It wakes for enough of the names, one of them
// new; for anything new that is awaited besides; or for children. A signal was handed if the step that parked was picked with its tag
// awaited and its condition met, and its id was there: ids of one inbox are in the order of arrival, so one number says which were.
// Nearly all have an empty inbox and no children: these are found out first, and cheaply. An instance that a commit did not change is not locked by
// it, and nothing is new for it: whoever parked it has looked.
var recheckText = `
with /* recheck */ c as materialized (
  select x.id from unnest($1::uuid[]) x(id) where (select s.id from pointsman.signals s where s.instance_id = x.id order by s.instance_id, s.id limit 1) is not null
  union all select id from unnest($3::uuid[]) x(id)
), m as materialized (
  select i.id from pointsman.instances i cross join lateral (
    select count(distinct x.name) filter (where x.kind = 'signal') as names, bool_or(x.news) filter (where x.kind = 'signal') as news,
      bool_or(x.news) filter (where x.kind not in ('signal', 'child')) as besides
    from (select s.kind, s.name, s.id > i.handed_to or ` + tag + ` <> all(i.handed) or not ` + passes("i.handed_where") + ` as news
      from pointsman.signals s where s.instance_id = i.id and ` + tag + ` = any(i.awaits) and ` + passes("i.await_where") + ` offset 0) x offset 0) n
  where i.id = any(array(select id from c)) and ` + alive + ` and i.parked and not i.paused
    and (n.names >= i.await_n and n.news or n.besides or ` + childrenEnded + `)
), ` + wakesParked

// wakeParentsText ($1, $2 as recheck) is for parents to whom ends of children have come, and nothing else: it reads no inbox whole.
var wakeParentsText = `
with /* wake parents */ m as materialized (
  select i.id from pointsman.instances i where i.id = any($1) and ` + alive + ` and i.parked and not i.paused and ` + childrenEnded + `
), ` + wakesParked

// childrenEnded: i awaits children, and none is live any more, or as many ends are there as it wants, with something new in either case.
// New is an end that was not handed to the step that parked, or, where none is live, that this await is for another number than the one
// before. The youngest child is looked at first: where they end in the order of their starts, that is one probe until the last of them.
const childrenEnded = `coalesce((
    select case when (select c.id from pointsman.instances c where c.parent_id = i.id and c.live >= true order by c.parent_id desc, c.live desc, c.id desc limit 1) is null and i.id <> all($2)
        then a.tag <> all(i.handed) or ` + newEnd + `
      when a.tag = 'child/all children' then false
      else (select count(*) from (select from pointsman.signals s where s.instance_id = i.id and s.kind = 'child' order by s.instance_id, s.id limit ` + wantedEnds + `) x) >= ` + wantedEnds + ` and ` + newEnd + ` end
    from unnest(i.awaits) a(tag) where a.tag like 'child/%' and a.tag <> '` + TagChildren + `'), false)`

const (
	wantedEnds = `(case a.tag when 'child/any child' then 1 else substring(a.tag from 7 for strpos(a.tag, ' ') - 7)::int end)`
	newEnd     = `(select s.id from pointsman.signals s where s.instance_id = i.id and s.kind = 'child'
          and s.id > case when '` + TagChildren + `' = any(i.handed) then i.handed_to else 0 end order by s.instance_id, s.id limit 1) is not null`
	// wakesParked makes those in m ready.
	wakesParked = `u as (
  update pointsman.instances i set parked = false from m where i.id = m.id and i.parked and not i.paused
  returning i.id, i.queue, i.priority, i.rev, ` + wakeMoves + ` as moved
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from u)
select id, queue, moved from u`
)

// PathError says that a text is no SQL/JSON path.
type PathError struct {
	Path   string
	Reason string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("%q is no SQL/JSON path: %s", e.Path, e.Reason)
}

// CheckPath asks Postgres whether a text is an SQL/JSON path, which nobody else can tell. The error is a [*PathError] where it is none.
func (s *Store) CheckPath(ctx context.Context, path string) error {
	return pathError(path, s.each(ctx, "check path", s.text.checkPath, nil, path))
}

// pathError is an error as one of the path, where it is.
func pathError(path string, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && slices.Contains([]string{"22", "42", "54", "0A"}, pg.Code[:2]) { // data, syntax, limit, what it cannot do
		return &PathError{Path: path, Reason: strings.TrimSuffix(pg.Message, " of jsonpath input")}
	}
	return err
}

const checkPathText = `select /* check path */ $1::text::jsonpath is not null`

// Passing are those of the signals of an instance whose payloads pass a condition. The error is a [*PathError] where that is none.
func (s *Store) Passing(ctx context.Context, instance uuid.UUID, path string, signals []int64) (passing []int64, err error) {
	err = s.each(ctx, "passing", s.text.passing, func(r pgx.Rows) error {
		var id int64
		err := r.Scan(&id)
		passing = append(passing, id)
		return err
	}, instance, path, signals)
	return passing, pathError(path, err)
}

const passingText = `
select /* passing */ s.id from pointsman.signals s
where s.instance_id = $1 and s.id = any($3::bigint[]) and coalesce(jsonb_path_match_tz(s.payload, $2::text::jsonpath, '{}', true), false) order by s.id`
