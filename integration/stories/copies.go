package stories

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/integration/oracle"
)

// Copies keeps what leaves the outbox in a table of its own, and notes what of it no stream has: without it nobody could say whether something
// was not committed, not published, or lost by the stream that had it.
type Copies struct {
	db      *pgxpool.Pool
	account *oracle.Account
	watch   *Watch

	mu   sync.Mutex
	from string // the first transaction that may have been open when the table was read last
	open map[int64]copied
}

// copied is a row that left the outbox, and whose message has not been read from its stream.
type copied struct {
	Row                  int64
	Kind, MsgID, Subject string
	Body                 []byte
	at                   time.Time // when it was read here
}

// copyTable is made in the database under test; what it has is gone when that is.
const copyTable = `
create schema oracle;
create table oracle.copies (
  tx      xid8   not null default pg_current_xact_id(),
  row     bigint not null,
  kind    text   not null,
  msg_id  text   not null,
  subject text   not null,
  body    bytea  not null
);
create index on oracle.copies (tx);
create function oracle.copy() returns trigger language plpgsql security definer as $$
begin
  insert into oracle.copies (row, kind, msg_id, subject, body) select id, kind, msg_id, subject, body from gone;
  return null;
end $$;
create trigger copy after delete on pointsman.outbox referencing old table as gone for each statement execute function oracle.copy();`

// NewCopies makes the table.
func NewCopies(ctx context.Context, db *pgxpool.Pool, account *oracle.Account, watch *Watch) (*Copies, error) {
	if _, err := db.Exec(ctx, copyTable); err != nil {
		return nil, fmt.Errorf("keep copies of what leaves the outbox: %w", err)
	}
	return &Copies{db: db, account: account, watch: watch, from: "0", open: map[int64]copied{}}, nil
}

// late is after how long a message that its stream should have had before is looked for. It is no deadline for the stream, only for this
// package's reading of it, which all faults slow down.
const late = 20 * time.Second

// Run notes what is missing until ctx ends, so that nobody waits for it.
func (c *Copies) Run(ctx context.Context) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, answerTimeout)
		_, _ = c.look(call, late) // the next round looks again
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// Settle notes what is missing now, and reports whether it could: streams have to be read to their ends for that.
func (c *Copies) Settle(ctx context.Context) (settled bool, err error) { return c.look(ctx, 0) }

func (c *Copies) read(ctx context.Context) error {
	rows, err := c.db.Query(ctx, `select row, kind, msg_id, subject, body, pg_snapshot_xmin(pg_current_snapshot())::text
from oracle.copies where tx >= $1::text::xid8 and (kind in ('outcome', 'dead') or kind = 'publish' and subject like $2)`, c.from, records+"%")
	if err != nil {
		return err
	}
	from := c.from
	var r copied
	if _, err = pgx.ForEachRow(rows, []any{&r.Row, &r.Kind, &r.MsgID, &r.Subject, &r.Body, &from}, func() error {
		if _, known := c.open[r.Row]; !known && !c.account.IsFound(r.MsgID) {
			r.at = time.Now()
			c.open[r.Row] = r
		}
		return nil
	}); err != nil {
		return err
	}
	c.from = from
	return nil
}

// look for what was read so long ago.
func (c *Copies) look(ctx context.Context, ago time.Duration) (settled bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(ctx); err != nil {
		return false, err
	}
	due := 0
	for row, r := range c.open {
		if c.account.IsFound(r.MsgID) {
			delete(c.open, row)
		} else if time.Since(r.at) >= ago {
			due++
		}
	}
	if due == 0 {
		return true, nil
	}
	if read, err := c.watch.CaughtUp(ctx); err != nil || !read {
		return false, err
	}
	for row, r := range c.open {
		if time.Since(r.at) < ago {
			continue
		}
		delete(c.open, row)
		if c.account.IsFound(r.MsgID) {
			continue
		}
		c.account.Missing(r.MsgID, fmt.Sprintf("%s to %s, row %d of the outbox: %s", r.Kind, r.Subject, r.Row, r.Body))
		if err := c.restore(r); err != nil {
			return false, err
		}
	}
	return true, nil
}

// restore what a message would have said.
func (c *Copies) restore(r copied) error {
	switch {
	case strings.HasPrefix(r.Subject, records):
		return c.account.Record(r.MsgID, r.Body)
	case r.Kind == "outcome":
		return noteOutcome(c.account, r.MsgID, r.Body)
	}
	return nil
}

// storedLine is how a bridge logs an ack.
var storedLine = regexp.MustCompile(`msg="publication stored" row=\d+ id=(\S+) (stream=\S+ sequence=\d+ duplicate=\S+)`)

// TellAcks notes the acks that a bridge has logged, and returns how many that are.
func TellAcks(account *oracle.Account, log string) (acks int) {
	for _, m := range storedLine.FindAllStringSubmatch(log, -1) {
		account.Told(m[1], m[2])
		acks++
	}
	return acks
}
