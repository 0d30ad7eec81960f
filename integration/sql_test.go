package integration

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

// TestSQLDocs runs docs/sql.md with psql, block by block. What a block of text says after one of SQL is what psql prints, line by line; what
// begins with ERROR: is how the block before ends.
func TestSQLDocs(t *testing.T) {
	t.Parallel()
	program := psql(t)
	url := pgtest.Database(t)
	if err := migrations.Up(t.Context(), url, ""); err != nil {
		t.Fatal(err)
	}
	run := func(sql string) (out, errs string, err error) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(sql), &stdout, &stderr
		err = cmd.Run()
		return stdout.String(), stderr.String(), err
	}
	t.Cleanup(func() { // the role is the server's, and would outlive the database
		if _, errs, err := run(`drop owned by shop_service; drop role shop_service`); err != nil {
			t.Error(errs)
		}
	})
	text, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fence.FindAllStringSubmatch(string(text), -1)
	ran := 0
	for i, block := range blocks {
		if block[1] != "sql" {
			continue
		}
		ran++
		says := ""
		if i+1 < len(blocks) && blocks[i+1][1] == "text" {
			says = blocks[i+1][2]
		}
		out, errs, err := run(block[2])
		if wantsError := strings.HasPrefix(says, "ERROR:"); (err != nil) != wantsError {
			t.Fatalf("%v\n%s\n%s%s", err, block[2], out, errs)
		}
		rest := strings.Join(strings.Fields(out+errs), " ")
		for line := range strings.Lines(says) {
			line = strings.Join(strings.Fields(line), " ")
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Fatalf("docs/sql.md says %q, and psql:\n%s%s", line, out, errs)
			}
			rest = after
		}
	}
	if ran < 9 {
		t.Errorf("only %d blocks of SQL", ran)
	}
}

// psql is the program, also where PATH does not lead to it. Without it the test is skipped, and fails when CI is "true".
func psql(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("psql"); err == nil {
		return path
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql"); len(found) > 0 {
		return found[len(found)-1]
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no psql found: install a Postgres client")
	}
	t.Skip("no psql found")
	return ""
}
