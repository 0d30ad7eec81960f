package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/subjects"
)

// Results of a [Check].
const (
	CheckOK      = "ok"
	CheckWarning = "warning"
	CheckWrong   = "wrong"
	CheckUnknown = "unknown" // nobody could be asked
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Do     string `json:"do"` // what to change; "": nothing
}

// Bounds of what is no trouble.
const (
	maxClockDifference = 2 * time.Second
	maxSnapshotAge     = 10 * time.Minute
	leastPayload       = 1 << 20
	leastNATS          = "2.10"
	leastPostgres      = 140000
)

// examination collects checks.
type examination struct{ checks []Check }

func (e *examination) add(name, result, do, found string, args ...any) {
	if result == CheckOK {
		do = ""
	}
	e.checks = append(e.checks, Check{name, result, fmt.Sprintf(found, args...), do})
}

// expect adds a check that is ok or else has another result.
func (e *examination) expect(name string, ok bool, otherwise, do, found string, args ...any) {
	if ok {
		otherwise = CheckOK
	}
	e.add(name, otherwise, do, found, args...)
}

// ExamineDatabase looks at the database of a configuration. It changes nothing.
func ExamineDatabase(ctx context.Context, cfg *config.Config) []Check {
	var e examination
	if err := checkDatabase(cfg); err != nil {
		e.add("database", CheckWrong, "set database.url, or POINTSMAN_DATABASE_URL", "%v", err)
		return e.checks
	}
	db, err := engine.Connect(ctx, cfg.Database.URL, 1, cfg.Database.Pooler == config.PoolerTransaction)
	if err == nil {
		defer db.Close()
		err = e.server(ctx, db)
	}
	if err != nil {
		e.add("database", CheckWrong, "see that Postgres runs there, and that the user of database.url may connect", "%v", err)
		return e.checks
	}
	err = engine.CheckSchema(ctx, db, cfg.Database.Schema)
	if err != nil {
		e.add("schema", CheckWrong, "run pointsman migrate up, or programs of the version of the schema", "%v", err)
	} else {
		e.add("schema", CheckOK, "", "%s is as this build needs it", cfg.Database.Schema)
	}
	return e.checks
}

func (e *examination) server(ctx context.Context, db *pgxpool.Pool) error {
	before := time.Now()
	s, err := store.ReadServer(ctx, db)
	if err != nil {
		return err
	}
	e.expect("database version", s.Version >= leastPostgres, CheckWrong, "use PostgreSQL 14 or newer", "PostgreSQL %d", s.Version/10000)
	e.expect("database primary", !s.Standby, CheckWrong, "name the primary in database.url", "%s", map[bool]string{true: "it is a standby, which takes no writes", false: "it takes writes"}[s.Standby])
	for _, want := range []struct{ name, result, why string }{
		{"fsync", CheckWrong, "a crash of the machine destroys the database"},
		{"full_page_writes", CheckWrong, "a crash of the machine can destroy the database"},
		{"synchronous_commit", CheckWrong, "a crash can lose what was acked"},
		{"autovacuum", CheckWrong, "the tables grow, and get slower, for good"},
		{"track_counts", CheckWrong, "autovacuum does not know what to do"},
	} {
		if value := s.Settings[want.name]; value == "off" {
			e.add("database "+want.name, want.result, "alter system set "+want.name+" = on; select pg_reload_conf()", "off: %s", want.why)
		} else {
			e.add("database "+want.name, CheckOK, "", "%s", value)
		}
	}
	do := "end prepared transactions: commit or rollback prepared"
	if s.OldestBy != 0 {
		do = fmt.Sprintf("see what it does: select * from pg_stat_activity where pid = %d", s.OldestBy)
	}
	e.expect("database snapshots", s.Oldest < maxSnapshotAge, CheckWarning, do, "the oldest is kept for %s", s.Oldest.Round(time.Second))
	e.expect("database slots", len(s.Slots) == 0, CheckWarning, "read the slots, or drop them: pg_drop_replication_slot", "%d replication slots keep dead rows and are not read: [%s]", len(s.Slots), strings.Join(s.Slots, ", "))
	e.clock("database clock", before, s.Now)
	return nil
}

// clock compares a clock with that of this machine, which was asked for the other before.
func (e *examination) clock(name string, before, other time.Time) {
	after := time.Now()
	difference := time.Duration(0)
	switch {
	case other.Before(before):
		difference = before.Sub(other)
	case other.After(after):
		difference = other.Sub(after)
	}
	e.expect(name, difference <= maxClockDifference, CheckWarning, "have both machines keep time, by NTP", "%s apart from this machine's", difference.Round(time.Millisecond))
}

// ExamineNATS looks at the server behind a connection with a bridge's configuration. It changes nothing.
func ExamineNATS(ctx context.Context, cfg *config.Config, nc *nats.Conn) []Check {
	var e examination
	e.expect("nats version", newer(nc.ConnectedServerVersion()), CheckWrong, "use nats-server "+leastNATS+" or newer", "nats-server %s", nc.ConnectedServerVersion())
	e.expect("nats max_payload", nc.MaxPayload() >= leastPayload, CheckWarning, "set max_payload: 1MB, or larger messages and answers are refused", "%d bytes", nc.MaxPayload())
	e.rights(ctx, cfg, nc)
	js, err := JetStream(nc, cfg)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	if err != nil {
		// The right to ask is none that the programs need.
		e.add("jetstream", CheckUnknown, "where streams are not found below: have JetStream on for this account", "%v", err)
	} else {
		e.add("jetstream", CheckOK, "", "it is on")
	}
	if js != nil {
		e.streams(ctx, cfg, js)
	}
	return e.checks
}

// newer says that a version is at least leastNATS.
func newer(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 2 || major == 2 && minor >= 10
}

func (e *examination) streams(ctx context.Context, cfg *config.Config, js jetstream.JetStream) {
	var names []string
	for _, r := range cfg.Routes {
		names = append(names, r.Stream)
	}
	if space, err := subjects.New(cfg.NATS.SubjectPrefix); err == nil {
		names = append(names, space.DeadLettersStream())
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		before := time.Now()
		stream, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			e.add("stream "+name, CheckWrong, "create the stream; a bridge makes its own ones", "there is none")
		case err != nil:
			e.add("stream "+name, CheckUnknown, "allow this user $JS.API.STREAM.INFO."+name, "%v", err)
		default:
			info := stream.CachedInfo()
			e.add("stream "+name, CheckOK, "", "%d messages", info.State.Msgs)
			e.clock("nats clock, by "+name, before, info.TimeStamp)
		}
	}
}

// permissions of a user, as the server has them. No list allows all.
type permissions struct {
	Publish   *subjectRights `json:"publish"`
	Subscribe *subjectRights `json:"subscribe"`
}

type subjectRights struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// rights asks the server what this user may do, and compares that with what a bridge needs.
func (e *examination) rights(ctx context.Context, cfg *config.Config, nc *nats.Conn) {
	const name = "nats rights"
	all, err := Permissions(cfg, nil)
	if err != nil {
		e.add(name, CheckUnknown, "mend the configuration: pointsman routes check", "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var answer struct {
		Data struct {
			Permissions *permissions `json:"permissions"`
		} `json:"data"`
	}
	reply, err := nc.RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if err == nil {
		err = json.Unmarshal(reply.Data, &answer)
	}
	if err != nil {
		e.add(name, CheckUnknown, "allow this user to publish to $SYS.REQ.USER.INFO, or compare pointsman routes permissions by hand", "%v", err)
		return
	}
	var missing []string
	if have := answer.Data.Permissions; have != nil {
		missing = append(have.Publish.missing("publish to", all[0].Publish), have.Subscribe.missing("subscribe to", all[0].Subscribe)...)
	}
	e.expect(name, len(missing) == 0, CheckWrong, "pointsman routes permissions prints what a bridge needs", "%s", rightsText(missing))
}

func rightsText(missing []string) string {
	if len(missing) == 0 {
		return "all that a bridge needs"
	}
	return "this user may not " + strings.Join(missing, ", ")
}

// missing are the subjects that are not allowed, or are denied.
func (r *subjectRights) missing(verb string, want []string) (missing []string) {
	if r == nil {
		return nil
	}
	for _, subject := range want {
		allowed := len(r.Allow) == 0 || slices.ContainsFunc(r.Allow, func(filter string) bool { return covers(filter, subject) })
		denied := slices.ContainsFunc(r.Deny, func(filter string) bool { return covers(filter, subject) })
		if !allowed || denied {
			missing = append(missing, verb+" "+subject)
		}
	}
	return missing
}

// covers says that a filter takes all that another one does.
func covers(filter, other string) bool {
	if strings.HasSuffix(other, ">") && !strings.HasSuffix(filter, ">") {
		return false
	}
	for i, token := range subjects.Tokens(filter) {
		tokens := subjects.Tokens(other)
		if i < len(tokens) && tokens[i] == "*" && token != "*" && token != ">" {
			return false
		}
	}
	return subjects.Match(filter, other)
}
