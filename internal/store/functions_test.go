package store

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/migrations"
	"github.com/pointsman/pointsman/subjects"
)

var writeFunctions = flag.Bool("write", false, "write the functions of the store's statements into the migration that has them")

// shared is a statement that SQL functions run too: the function of its own that a migration makes of it.
type sharedText struct {
	name    string
	args    string // types
	returns string // columns; "": none
	text    func(x *texts) string
}

// sharedTexts are the statements of the Go API that the SQL functions are made of.
var sharedTexts = []sharedText{
	{"_lock_keys", "bigint[]", "", func(x *texts) string { return x.lockScopes }},
	{
		"_deliver", "text, text[], text[], text[], text[], text[], uuid[], uuid[], uuid[], text[], text[], boolean[]",
		"ord bigint, verdict int, instance uuid, signal bigint, queue text, slow boolean", func(x *texts) string { return x.deliverKeySlow },
	},
	{"_recheck", "uuid[], uuid[], uuid[]", "instance uuid, queue text, moved boolean", func(x *texts) string { return x.recheck }},
	{
		"_nobody", "text, text[], uuid[], uuid[], uuid[], uuid[], boolean[]",
		"ord bigint, verdict int, instance uuid, signal bigint, status text, ended timestamptz", func(x *texts) string { return x.nobodyKey },
	},
	{"_hold", "text, text[], text[], text[], text[], text[], uuid[], uuid[], uuid[], text[], text[], bigint[], text[], bytea[]", "", func(x *texts) string { return x.hold }},
	{"_guard", "uuid[], text[], text[], uuid[]", "ord int, has boolean", func(x *texts) string { return x.guard }},
	{
		"_start", "text, uuid[], text[], uuid[], text[], int[], text[], text[], smallint[], text[], timestamptz[], text[], text[], uuid[], uuid[], uuid[], text[], text[], smallint[], boolean[], boolean[], uuid[], text[]",
		"ord bigint, verdict int, instance uuid, queue text, adopted int, of_unique boolean", func(x *texts) string { return x.start },
	},
	{"_give_back", "text, text[], uuid[]", "", func(x *texts) string { return x.giveBack }},
	{"_publish", "text, text[], text[], text[], bytea[]", "", func(x *texts) string { return x.publish }},
}

// body is what the function runs. It keeps the plan of its statement from call to call, which a function in SQL does not.
func (f sharedText) body(x *texts) string {
	text := strings.TrimSpace(f.text(x))
	switch {
	case f.returns != "":
		return "\n#variable_conflict use_column\nbegin\n  return query\n" + text + ";\nend "
	case strings.HasPrefix(text, "select"):
		return "\n" + text + "\n"
	default:
		return "\nbegin\n" + text + ";\nend "
	}
}

func (f sharedText) definition(x *texts) string {
	returns, language := "void", "plpgsql"
	if f.returns != "" {
		returns = "table (" + f.returns + ")"
	} else if strings.HasPrefix(strings.TrimSpace(f.text(x)), "select") {
		language = "sql"
	}
	return fmt.Sprintf("create function pointsman.%s(%s) returns %s language %s as $$%s$$;\n", f.name, f.args, returns, language, f.body(x))
}

const (
	functionsFile  = "../../migrations/0007_functions.sql"
	functionsBegin = "-- >>>"
	functionsEnd   = "-- <<<"
)

// The SQL functions run the statements of this package, word for word.
func TestSQLFunctions(t *testing.T) {
	t.Parallel()
	if *writeFunctions {
		writeSharedTexts(t)
	}
	f := setup(t)
	for _, s := range sharedTexts {
		var got string
		err := f.db.Pool.QueryRow(t.Context(), `select p.prosrc from pg_proc p where p.pronamespace = $1::regnamespace and p.proname = $2`, f.schema, s.name).Scan(&got)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if want := s.body(&f.text); got != want {
			unqualified := newTexts(func(sql string) string { return sql })
			t.Errorf("%s is not the statement of internal/store any more. A new migration has to make it so (until the release that has %s: -write):\n%s",
				s.name, functionsFile, strings.Replace(s.definition(&unqualified), "create function", "create or replace function", 1))
		}
	}
}

func writeSharedTexts(t *testing.T) {
	t.Helper()
	x := newTexts(func(sql string) string { return sql })
	var all strings.Builder
	for _, s := range sharedTexts {
		all.WriteString("\n" + s.definition(&x))
	}
	text := string(must(os.ReadFile(functionsFile))(t))
	head, rest, _ := strings.Cut(text, functionsBegin)
	first, rest, _ := strings.Cut(rest, "\n")
	_, tail, found := strings.Cut(rest, functionsEnd)
	if !found {
		t.Fatalf("%s has no %s", functionsFile, functionsEnd)
	}
	must(0, os.WriteFile(functionsFile, []byte(head+functionsBegin+first+"\n"+strings.TrimPrefix(all.String(), "\n")+functionsEnd+tail), 0o600))(t)
	t.Skip("written: the programs embed the file, so run the test again")
}

// The schema's name is the user's: nothing in the functions leads to another.
func TestSQLFunctionsOfAnotherSchema(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var strays int
	err := f.db.Pool.QueryRow(t.Context(), `select count(*) from pg_proc p where p.pronamespace = $1::regnamespace and strpos(p.prosrc, $2) > 0`,
		f.schema, migrations.DefaultSchema+".").Scan(&strays)
	if err != nil || strays != 0 || f.schema == migrations.DefaultSchema {
		t.Errorf("%d functions name the schema %s, %v", strays, migrations.DefaultSchema, err)
	}
}

// The functions judge keys, names, subjects and documents as package ident does.
func TestSQLValidates(t *testing.T) {
	t.Parallel()
	f := setup(t)
	bad := func(sql string, args ...any) bool {
		t.Helper()
		var refused bool
		err := f.db.Pool.QueryRow(t.Context(), migrations.Qualify(`select `+sql+` is not null`, f.schema), args...).Scan(&refused)
		if err != nil {
			t.Fatalf("%s of %.80q: %v", sql, args, err)
		}
		return refused
	}
	agree := func(sql, s string, err error) {
		t.Helper()
		if got := bad(sql, s); got != (err != nil) {
			t.Errorf("%s of %.80q: refused is %t, and package ident says %v", sql, s, got, err)
		}
	}
	texts := []string{
		"", "a", "é", "0", "_", "-a", ":a", ".a", "a.b", "a-b:c_d", "a b", "a\n", "\n", "a\tb", "\x1f", "\x7f", "\x80é", "ä", "a\u00a0", "a/b", "a*", ">", "a.", ".", "a..b",
		strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("é", 512), strings.Repeat("é", 513), strings.Repeat("x", 512), strings.Repeat("x", 513), "[", "]", "^", "'", `\`, `"`, "K", "ſ",
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			continue // Postgres takes none
		}
		agree(`pointsman._bad_key('f', $1)`, s, ident.Key("f", s))
		agree(`pointsman._bad_name('f', $1)`, s, ident.Name("f", s))
		agree(`pointsman._bad_token('f', $1)`, s, ident.Token("f", s))
		agree(`pointsman._bad_subject($1)`, s, subjects.ValidSubject(s))
	}
	nest := func(n int, inner string) string { return strings.Repeat("[", n) + inner + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, doc := range []string{
		`null`, `{}`, `"é"`, `1`, `-0.5`, strings.Repeat("9", 1000), strings.Repeat("9", 1001), `"` + strings.Repeat("9", 1001) + `"`, `{"` + strings.Repeat("9", 1001) + `": 1}`,
		"[" + strings.Repeat("9,", 1001) + "1]", "-" + strings.Repeat("9", 500) + "." + strings.Repeat("9", 500), strings.Repeat("9", 500) + "." + strings.Repeat("9", 501), "1e999", "1e1001", "1e-1000", "1e-999",
		`{"a": [{"b": ` + strings.Repeat("9", 1001) + `}]}`, nest(999, ""), nest(1000, ""), nest(1001, ""), nest(1000, "1"), nest(1001, "1"), objects(1000), objects(1001), `"` + strings.Repeat("[", 2000) + `"`,
		"[" + strings.Repeat("[],", 2000) + "[]]", `"` + strings.Repeat("x", ident.MaxJSON-2) + `"`, `"` + strings.Repeat("x", ident.MaxJSON-1) + `"`,
	} {
		var written string // is what is stored, and what a step would give back
		if err := f.db.Pool.QueryRow(t.Context(), `select $1::text::jsonb::text`, doc).Scan(&written); err != nil {
			t.Fatal(err)
		}
		if err := ident.JSON("f", []byte(written), ident.MaxJSON); bad(`pointsman._bad_json('f', $1::text::jsonb)`, doc) != (err != nil) {
			t.Errorf("_bad_json of %.80s: package ident says %v", doc, err)
		}
	}
}

// The functions have the hashes of this package, and ids in the order of time.
func TestSQLHashes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for want, sql := range map[uuid.UUID]string{
		KeyScope("p", "é"): `pointsman._hash('p', 'é')`,
		SignalDedup("d"):   `pointsman._hash('d')`,
		StartDedup("d"):    `pointsman._hash('start', 'd')`,
		SignalHash("signal", "n", []byte(`{"a": 1}`)): `pointsman._hash('signal', 'n', '{"a": 1}'::jsonb::text)`,
		NewInstance{DedupKey: "d"}.Scope("p"):         `pointsman._hash('p', 'start', 'd')`,
		NewInstance{CorrelationKey: "k"}.Scope("p"):   `pointsman._hash('p', 'k')`,
	} {
		f.want(want.String(), `select `+sql+`::text`)
	}
	before := uuid.Must(uuid.NewV7())
	var ids []uuid.UUID
	err := f.db.Pool.QueryRow(t.Context(), migrations.Qualify(`select array_agg(pointsman._uuid7()) from generate_series(1, 100)`, f.schema)).Scan(&ids)
	if err != nil {
		t.Fatal(err)
	}
	after := uuid.Must(uuid.NewV7())
	for _, id := range ids {
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 || bytes.Compare(before[:7], id[:7]) > 0 || bytes.Compare(id[:7], after[:7]) > 0 {
			t.Fatalf("%s is not between %s and %s", id, before, after)
		}
	}
}
