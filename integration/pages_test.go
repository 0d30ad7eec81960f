package integration

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// page is a page of docs/ whose commands are typed, in a home of its own. What follows the language of a fenced block says what it is:
//
//	```sh                  commands, run by bash one block after another; each has to end with 0
//	```sh exit=1           the block has to end with this status
//	```sh terminal=dev     the same in another terminal, where the commands go on while the page does. What runs there already gets Ctrl-C first
//	```sh until            the block is typed again until it prints what the page shows
//	```text                what the block before prints. An ellipsis stands for anything, also for lines; how much space there is does not matter
//	```text terminal=dev   what comes in the terminal sooner or later
//	```yaml file=a.yaml    a file, where the commands before have gone to
//
// Any other block is only read. In the home are the built pointsman, bridge and worker on the PATH.
type page struct {
	*stack
	name   string // below docs/
	start  string // where the first command is typed
	home   string
	env    []string
	screen map[string]*process // by terminal
}

type block struct {
	language, text string
	file, terminal string
	exit           string
	until          bool
}

var (
	pageFence  = regexp.MustCompile("(?ms)^```([a-z]*)([^\n]*)\n(.*?)^```$")
	attribute  = regexp.MustCompile(`(file|terminal|exit)=(\S+)`)
	indented   = regexp.MustCompile(`(?m)^ {4,}\S`)
	whitespace = regexp.MustCompile(`\s+`)
)

func pageBlocks(t *testing.T, file string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if code := indented.FindString(pageFence.ReplaceAllString(string(text), "")); code != "" {
		t.Errorf("%s has a block that is indented, which nobody runs: fence it", file)
	}
	for _, m := range pageFence.FindAllStringSubmatch(string(text), -1) {
		b := block{language: m[1], text: m[3], exit: "0"}
		for _, a := range attribute.FindAllStringSubmatch(m[2], -1) {
			switch a[1] {
			case "file":
				b.file = a[2]
			case "terminal":
				b.terminal = a[2]
			case "exit":
				b.exit = a[2]
			}
		}
		if m[2] == " until" {
			b.until, m[2] = true, ""
		}
		if rest := strings.TrimSpace(attribute.ReplaceAllString(m[2], "")); rest != "" {
			t.Errorf("%s: ```%s%s: %q says nothing to this test", file, m[1], m[2], rest)
		}
		all = append(all, b)
	}
	return all
}

// newPage makes a home, with the environment of whoever runs the tests but for what steers pointsman.
func newPage(s *stack, name, start, tmp string, env ...string) *page {
	s.Helper()
	needs(s.T, "bash", "go")
	p := &page{stack: s, name: name, start: start, home: s.TempDir(), screen: map[string]*process{}}
	bin := filepath.Join(p.home, "go", "bin")
	for _, dir := range []string{bin, filepath.Join(p.home, ".terminals")} {
		s.must(os.MkdirAll(dir, 0o755))
	}
	for _, program := range []string{"pointsman", "bridge", "worker"} {
		from, err := built(program)
		s.must(err)
		s.must(os.Symlink(from, filepath.Join(bin, program)))
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "POINTSMAN_") || strings.HasPrefix(v, "POINTSMAN_INSTALL_") {
			p.env = append(p.env, v)
		}
	}
	p.env = append(p.env, "HOME="+p.home, "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+bin, "GOFLAGS=-buildvcs=false", "TMPDIR="+tmp, "POINTSMAN_HTTP_ADDR=127.0.0.1:0", "POINTSMAN_WORKER_HTTP_ADDR=127.0.0.1:0")
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GONOPROXY", "GONOSUMDB", "GOTOOLCHAIN"} // what another HOME would change
	values, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	s.must(err)
	lines := strings.Split(string(values), "\n") // empty ones too
	for i, name := range names {
		p.env = append(p.env, name+"="+lines[i])
	}
	p.env = append(p.env, env...)
	return p
}

// typed is what bash does with a block: where the block of that terminal before has left it, with the variables that were set.
const typed = `
set -ea
state=$1 block=$2
if [ -f "$state.env" ]; then . "$state.env"; fi
if [ -f "$state.dir" ]; then cd "$(cat "$state.dir")"; fi
trap 'status=$?; pwd > "$state.dir"; export -p > "$state.env"; exit $status' EXIT
. "$block"
`

// needs skips the test where a program is missing. When CI is "true" it fails.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// follow types all of a page.
func (p *page) follow() {
	p.Helper()
	all := pageBlocks(p.T, filepath.Join("..", "docs", p.name))
	for i, b := range all {
		switch {
		case b.file != "":
			p.must(os.WriteFile(filepath.Join(p.where(), b.file), []byte(b.text), 0o600))
		case b.language == "text" && b.terminal != "":
			p.prints(p.screen[b.terminal], shown(b.text))
		case b.language == "sh":
			says := ""
			if i+1 < len(all) && all[i+1].language == "text" && all[i+1].terminal == "" {
				says = all[i+1].text
			}
			p.enter(b, says)
		}
	}
}

// close ends what goes on in the terminals.
func (p *page) close() {
	p.Helper()
	for name, screen := range p.screen {
		p.ctrlC(name, screen)
	}
}

// enter types a block, which has to print what the page says.
func (p *page) enter(b block, says string) {
	p.Helper()
	screen := p.bash(b)
	if b.terminal != "" {
		p.screen[b.terminal] = screen
		p.prints(screen, shown(says))
		return
	}
	right := func() bool {
		return says == "" || regexp.MustCompile(`^\s*`+shown(says)+`\s*$`).MatchString(screen.out.String())
	}
	if b.until {
		p.until(patience, p.name+" has\n"+b.text+says, func() (bool, string) {
			err := screen.wait(patience)
			if err == nil && right() {
				return true, ""
			}
			last := screen.out.String()
			screen = p.bash(b)
			return false, last
		})
		return
	}
	err := screen.wait(patience)
	if got := strings.TrimPrefix(screen.cmd.ProcessState.String(), "exit status "); got != b.exit {
		p.Fatalf("%s: status %s and not %s (%v) of\n%s\n%s", p.name, got, b.exit, err, b.text, screen.out)
	}
	p.Logf("%s\n%s", b.text, screen.out)
	if !right() {
		p.Fatalf("%s has for\n%s\nthe output\n%s\nand it is\n%s", p.name, b.text, says, screen.out)
	}
}

const mainTerminal = "main"

// where the commands have gone to.
func (p *page) where() string {
	dir, err := os.ReadFile(filepath.Join(p.home, ".terminals", mainTerminal+".dir"))
	if err != nil {
		return p.start
	}
	return strings.TrimSpace(string(dir))
}

func (p *page) bash(b block) *process {
	p.Helper()
	if running := p.screen[b.terminal]; running != nil {
		p.ctrlC(b.terminal, running)
	}
	state := filepath.Join(p.home, ".terminals", cmp.Or(b.terminal, mainTerminal))
	p.must(os.WriteFile(state+".sh", []byte(b.text), 0o600))
	cmd := exec.Command("bash", "-c", typed, "bash", state, state+".sh")
	cmd.Dir, cmd.Env = p.start, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	screen := p.launch(cmd)
	p.Cleanup(func() {
		if signalGroup(screen, syscall.SIGINT) { // the test has failed
			_ = screen.wait(grace)
			signalGroup(screen, syscall.SIGKILL)
		}
	})
	return screen
}

// grace is what is left to a dev of a test that has failed, to stop its Postgres.
const grace = 10 * time.Second

// ctrlC ends what runs in a terminal, as the key does: all of it is told.
func (p *page) ctrlC(name string, screen *process) {
	p.Helper()
	if signalGroup(screen, syscall.SIGINT) {
		_ = screen.wait(patience)
	}
	select {
	case <-screen.done:
	default:
		p.Fatalf("%s: what runs in terminal %s does not end:\n%s", p.name, name, screen.out)
	}
}

// signalGroup tells a process that still runs, and what it has started.
func signalGroup(screen *process, s syscall.Signal) bool {
	select {
	case <-screen.done:
		return false
	default:
		return syscall.Kill(-screen.cmd.Process.Pid, s) == nil
	}
}

// shown is a pattern for what a page shows of an output.
func shown(text string) string {
	parts := strings.Split(text, "...")
	for i, part := range parts {
		words := strings.Fields(part)
		for j, word := range words {
			words[j] = regexp.QuoteMeta(word)
		}
		pattern := strings.Join(words, `\s+`)
		if pattern != "" && whitespace.MatchString(part[:1]) {
			pattern = `\s*` + pattern
		}
		if pattern != "" && whitespace.MatchString(part[len(part)-1:]) {
			pattern += `\s*`
		}
		parts[i] = pattern
	}
	return "(?s)" + strings.Join(parts, ".*?")
}

// TestTutorial types docs/tutorial.md in a checkout.
func TestTutorial(t *testing.T) {
	t.Parallel()
	s, tmp := newDev(t)
	root, err := filepath.Abs("..")
	s.must(err)
	p := newPage(s, "tutorial.md", root, tmp)
	p.follow()
	p.close()
	if _, err := os.Stat(filepath.Join(p.home, "dev.env")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dev that has ended leaves its addresses: %v", err)
	}
	s.clean(tmp)
}

// TestHowTo types docs/howto: README.md starts the example, on which the other pages are typed one after another.
func TestHowTo(t *testing.T) {
	t.Parallel()
	needs(t, "curl", "openssl")
	s, tmp := newDev(t)
	root, err := filepath.Abs("..")
	s.must(err)
	shop := newPage(s, "howto/README.md", root, tmp)
	s.must(os.Symlink(psql(t), filepath.Join(shop.home, "go", "bin", "psql")))
	shop.follow()
	files, err := filepath.Glob("../docs/howto/*.md")
	s.must(err)
	for _, file := range files {
		name := "howto/" + filepath.Base(file)
		if name == shop.name || name == "howto/pgbouncer.md" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := *shop
			p.stack, p.name = &stack{T: t}, name
			p.follow()
		})
	}
	t.Run("runbooks.md", func(t *testing.T) {
		if os.Getenv("POINTSMAN_TEST_GUARANTEES") == "" {
			t.Skip("make integration, or POINTSMAN_TEST_GUARANTEES=1, types them: another 40 seconds")
		}
		p := *shop
		p.stack, p.name = &stack{T: t}, "runbooks.md"
		p.runbooks()
	})
	shop.close()
}

// runbooks types each command of docs/runbooks.md, with names of the example in the place of those in capitals.
func (p *page) runbooks() {
	p.Helper()
	text, err := os.ReadFile("../docs/runbooks.md")
	p.must(err)
	// What the alerts are about: a dead letter, and a webhook that failed, as nothing is sent to this machine.
	p.enter(block{exit: "0", text: `
pointsman publish payments.1.confirmed nonsense --msg-id runbook
pointsman message --msg-id runbook --wait 30s
ID=$(pointsman start order '{"amount": 0, "items": 0}' --notify-url http://127.0.0.1/)
`}, "")
	p.enter(block{until: true, text: `
WEBHOOK=$(pointsman webhooks list --status failed -o 'jsonpath=$.items[0].id')
SEQ=$(pointsman dlq list --route payments --limit 1 -o 'jsonpath=$.items[0].seq')
test -n "$WEBHOOK" -a -n "$SEQ"
`}, "")
	in := strings.NewReplacer("ROUTE", "payments", "NAME", "order", "HOST", "127.0.0.1", "SUBJECT", "payments.1.confirmed", "BODY", `'{"amount": 5}'`,
		"TEXT", "body", "SEQ", "$SEQ", "WEBHOOK", "$WEBHOOK", "ID", "$ID")
	commands := regexp.MustCompile("`(pointsman [^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(commands) < 15 {
		p.Errorf("only %d commands are found", len(commands))
	}
	tried := map[string]bool{}
	for _, c := range commands {
		command := in.Replace(c[1])
		if tried[command] {
			continue
		}
		tried[command] = true
		switch {
		case strings.Contains(command, "dlq drop"), strings.Contains(command, " --all --machine"):
			command += " --yes"
		case command == "pointsman top": // until somebody ends it
			command = `timeout 2 pointsman top || [ $? = 124 ]`
		}
		p.enter(block{exit: "0", text: command}, "")
	}
}

// TestBouncerPage types docs/howto/pgbouncer.md, with one before the database and no migrations yet.
func TestBouncerPage(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	bouncer := pgtest.NewBouncer(t, pgtest.Database(t))
	home := t.TempDir()
	p := newPage(&stack{T: t}, "howto/pgbouncer.md", home, home, "POINTSMAN_DATABASE_URL="+bouncer.URL, "POINTSMAN_NATS_URL="+server.URL)
	p.follow()
	p.close()
}
