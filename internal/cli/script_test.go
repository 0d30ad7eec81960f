package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/integration/programs"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts")

func TestMain(m *testing.M) { pgtest.Main(m) }

// expense is a machine whose updates are validated by the configuration. Nobody answers its steps.
const expense = `
machines:
  - name: expense
    start: begin
    retry: {initial: 1h, max: 1h}
    updates:
      - name: decision
        schema: {type: object, required: [amount], properties: {amount: {type: number}}}
        when: payload.amount <= 100
        reason: more than 100 need the board
`

// TestScripts runs the scripts of testdata/script against one bridge and one worker with the orders example, and again against others with
// the commands over HTTP. Each script has orders of
// its own, whose numbers begin with its name.
//
// Beside testscript's commands there are:
//
//	status N COMMAND...     runs the command, which has to end with this exit status
//	until PATTERN COMMAND... runs the command until it succeeds and its output matches
//	scrub                   replaces what is never the same in the output: ids, times, sequences
func TestScripts(t *testing.T) {
	t.Parallel()
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	for _, over := range []string{"NATS", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			stack := apptest.Start(t, string(orders.Config)+expense+"\nhttp: {admin_token: "+adminToken+"}\n", map[string][]string{"ORDERS": {"orders.>"}, "PAYMENTS": {"payments.>"}}, machine, family(t))
			runScripts(t, stack, over == "HTTP")
		})
	}
}

// adminToken of the bridges: one script makes keys, after which their APIs want one.
const adminToken = "a-token-for-tests-of-commands"

func runScripts(t *testing.T, stack *apptest.Stack, overHTTP bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if overHTTP { // what says what NATS does
		files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "usage.txtar" })
	}
	program, err := programs.Build(t.Context(), programs.Options{}, "./cmd/pointsman") // as it is for users: hundreds of starts under the race detector take a minute
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: files, UpdateScripts: *update && !overHTTP, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("POINTSMAN_NATS_URL", stack.NATSURL)
			env.Setenv("POINTSMAN_DATABASE_URL", stack.DatabaseURL)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("HTTP_URL", stack.HTTPURL)
			env.Setenv("TOKEN", adminToken)
			if overHTTP {
				env.Setenv("POINTSMAN_URL", stack.HTTPURL)
				env.Setenv("POINTSMAN_TOKEN", adminToken)
			}
			env.Setenv("PATH", program+string(filepath.ListSeparator)+env.Getenv("PATH"))
			return os.WriteFile(filepath.Join(env.WorkDir, "orders.yaml"), orders.Config, 0o600)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"status": status, "until": until, "scrub": scrub},
	})
}

// family is a machine of which each instance starts one child, so many levels down, and waits for it.
func family(t *testing.T) *engine.Machine {
	t.Helper()
	type state struct {
		Depth int `json:"depth"`
	}
	machine, err := engine.Define(engine.Definition[state]{Name: "family", Start: "begin", Steps: map[string]engine.Step[state]{
		"begin": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
			if v.State.Depth == 0 {
				return engine.Await("begin", "never"), nil
			}
			child := engine.NewInstance{Machine: "family", State: engine.MustJSON(state{v.State.Depth - 1})}
			return engine.Await("end").OrChildren(engine.AllChildren).StartChild(child), nil
		},
		"end": func(context.Context, *engine.Visit[state]) (engine.Outcome, error) { return engine.Done(nil), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

func status(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil || neg {
		ts.Fatalf("usage: status N COMMAND...")
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	pattern, err := regexp.Compile(args[0])
	if err != nil || neg {
		ts.Fatalf("usage: until PATTERN COMMAND...: %v", err)
	}
	last := error(nil)
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); {
		if last = ts.Exec(args[1], args[2:]...); last != nil {
			continue
		}
		if out := ts.ReadFile("stdout"); pattern.MatchString(out) {
			return
		}
		last = fmt.Errorf("its output does not match %s", pattern)
	}
	ts.Fatalf("never: %v", last)
}

var volatile = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`((ORDERS|PAYMENTS)(, sequence)?) \d+`), "$1 <seq>"},
	{regexp.MustCompile(`\[\d+\]`), "[<signal>]"},
	{regexp.MustCompile(`(?m)^(signal +)\d+$`), "$1<signal>"},
	{regexp.MustCompile(`("(seq|stream_seq|signal_id)": )\d+`), "$1<n>"},
	{regexp.MustCompile(`(?m)^\d+ +`), "<n> "},
	{regexp.MustCompile(`nats://[0-9.:]+`), "<nats>"},
}

func scrub(ts *testscript.TestScript, _ bool, _ []string) {
	out := ts.ReadFile("stdout")
	for _, v := range volatile {
		out = v.pattern.ReplaceAllString(out, v.as)
	}
	_, err := ts.Stdout().Write([]byte(out))
	ts.Check(err)
}
