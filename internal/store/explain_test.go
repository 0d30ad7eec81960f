package store

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// explained is a statement that has run, as auto_explain tells of it: sent, planned and executed as always.
type explained struct {
	name    string
	buffers int
	plan    plan
}

// explainer is a store of one session, whose statements are explained.
type explainer struct {
	*Store
	seen []explained
}

// explains is the fixture's store on a session that tells of its statements. The server's auto_explain module has to be there.
func explains(f *fixture, pooler bool) *explainer {
	f.t.Helper()
	e := &explainer{}
	cfg := must(pgxpool.ParseConfig(f.db.URL))(f.t)
	Tune(cfg, pooler)
	cfg.MaxConns = 1
	cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { e.note(f.t, n.Message) }
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on; set auto_explain.log_timing = off;
			set auto_explain.log_buffers = on; set auto_explain.log_format = json; set auto_explain.log_level = notice;
			set auto_explain.log_nested_statements = on`)
		return err
	}
	pool := must(pgxpool.NewWithConfig(f.t.Context(), cfg))(f.t)
	f.t.Cleanup(pool.Close)
	if err := pool.Ping(f.t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			f.t.Fatal(err)
		}
		f.t.Skip(err)
	}
	e.Store = must(New(pool, f.schema))(f.t)
	return e
}

var statementName = regexp.MustCompile(`/\* ([a-z ]+) \*/`)

func (e *explainer) note(t testing.TB, message string) {
	_, explanation, found := strings.Cut(message, "plan:")
	if !found {
		return
	}
	var text struct {
		Query string `json:"Query Text"`
		Plan  plan
	}
	if err := json.Unmarshal([]byte(explanation), &text); err != nil {
		t.Errorf("%v in %s", err, message)
		return
	}
	name := statementName.FindStringSubmatch(text.Query)
	if name == nil || name[1] == "settings" {
		return
	}
	e.seen = append(e.seen, explained{name[1], text.Plan.buffers(), text.Plan})
}

// buffers are those that a statement has touched: those of its plan, and of the writes in it that nobody reads, which Postgres runs when
// the rest of the plan is through.
func (p plan) buffers() int {
	read := map[string]bool{}
	p.walk(func(n plan) {
		if n.Node == "CTE Scan" && n.Loops > 0 {
			read[n.CTE] = true
		}
	})
	total := p.Hit + p.Read
	p.walk(func(n plan) {
		if name, of := strings.CutPrefix(n.Subplan, "CTE "); of && n.Node == "ModifyTable" && !read[name] {
			total += n.Hit + n.Read
		}
	})
	return total
}

// explain runs what prepare makes ready, and returns what its statements were. Nothing of it stays.
func (e *explainer) explain(t *testing.T, prepare func(tx *Store) func() error) []explained {
	t.Helper()
	err := e.inTx(t.Context(), func(tx *Store) error {
		call := prepare(tx)
		e.seen = nil
		if err := call(); err != nil {
			return err
		}
		return errEnough
	})
	if err != errEnough { //nolint:errorlint // it is this one
		t.Fatal(err)
	}
	return e.seen
}
