package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// readme is what README.md tells a newcomer to type: the lines of its indented blocks, and its fenced blocks by language.
type readme struct {
	commands []string
	fenced   map[string][]string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)[^\n]*\n(.*?)^```$")

func readREADME(t *testing.T) readme {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	r := readme{fenced: map[string][]string{}}
	for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
		r.fenced[block[1]] = append(r.fenced[block[1]], block[2])
	}
	for line := range strings.SplitSeq(fence.ReplaceAllString(string(text), ""), "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			r.commands = append(r.commands, command)
		}
	}
	return r
}

// TestREADME types all that README.md says, in its order: with the programs built before instead of go run, and on the NATS server
// that dev found a port for.
func TestREADME(t *testing.T) {
	t.Parallel()
	r := readREADME(t)
	next := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if len(r.commands) == 0 || r.commands[0] != w {
				t.Fatalf("README has %q where this test types %q", r.commands[:min(1, len(r.commands))], w)
			}
			r.commands = r.commands[1:]
		}
	}

	next("go run ./cmd/pointsman dev")
	s, tmp := newDev(t)
	p := s.dev(tmp)
	s.prints(p, "Outcomes are printed here")
	for _, line := range strings.Split(p.out.String(), "\n") {
		if _, call, ok := strings.Cut(line, " publish "); ok {
			s.types(p, "publish "+call)
		}
	}
	s.prints(p, `pointsman\.outcome\.default\.order\.done .*"order-1001"`)
	s.interrupt(p)

	next("go run ./cmd/pointsman dev --traffic 2000 --exit --chaos")
	p = s.dev(tmp, "--traffic", "2000", "--exit", "--chaos")
	s.must(p.wait(5 * time.Minute))
	s.addsUp(p, 2000)

	next("go test -race ./...") // which this is
	s.parcels(tmp, r, next)
	s.ownServers(r, next)
	if len(r.commands) > 0 {
		t.Errorf("README has commands that no test types: %q", r.commands)
	}
}

// types runs a command line of pointsman, on the NATS server of a dev.
func (s *stack) types(dev *process, line string) string {
	s.Helper()
	path, err := built("pointsman")
	s.must(err)
	cmd := exec.Command("sh", "-c", path+" "+line)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "POINTSMAN_NATS_URL="+natsOf(s, dev))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func natsOf(s *stack, dev *process) string { return s.prints(dev, `NATS +(nats://\S+)`)[1] }

func (s *stack) interrupt(p *process) {
	s.Helper()
	s.must(p.cmd.Process.Signal(os.Interrupt))
	s.must(p.wait(patience))
}

// parcels is the process of one's own, with the configuration and the program that README shows.
func (s *stack) parcels(tmp string, r readme, next func(...string)) {
	s.Helper()
	config := r.fenced["yaml"][0]
	s.must(os.WriteFile(filepath.Join(s.dir, "parcels.yaml"), []byte(config), 0o600))
	next("go run ./cmd/pointsman dev --config parcels.yaml")
	p := s.dev(tmp, "--config", "parcels.yaml")
	s.prints(p, "Outcomes are printed here")
	s.prints(p, `posted reads parcels\.\*\.posted`)
	s.prints(p, `parcel asks for its steps on pointsman\.step\.parcel\.\*`)

	source := filepath.Join(s.dir, "parcel.go")
	at := slices.IndexFunc(r.fenced["go"], func(code string) bool { return strings.HasPrefix(code, "package main") })
	program := strings.Replace(r.fenced["go"][at], "nats.DefaultURL", `"`+natsOf(s, p)+`"`, 1)
	s.must(os.WriteFile(source, []byte(program), 0o600))
	binary := filepath.Join(s.dir, "parcel")
	if out, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		s.Fatalf("the program of README: %v\n%s", err, out)
	}
	service := s.launch(exec.Command(binary))
	for _, line := range []string{`publish parcels.7.posted '{"to": "Ada"}'`, `publish parcels.7.scanned '{"place": "depot"}'`, `publish parcels.7.scanned '{"place": "door"}'`} {
		next("go run ./cmd/pointsman " + line)
		s.types(p, line)
	}
	s.prints(p, `pointsman\.outcome\.default\.parcel\.done .*"delivered": ?true`)
	next("go run ./cmd/pointsman get key:parcel-7")
	if out := s.types(p, "get key:parcel-7"); !strings.Contains(out, "done") {
		s.Errorf("get says:\n%s", out)
	}
	service.kill()
	s.interrupt(p)
}

// ownServers is the part on servers of one's own.
func (s *stack) ownServers(r readme, next func(...string)) {
	s.Helper()
	own := newStack(s.T)
	own.file("parcels.yaml", r.fenced["yaml"][0])
	next("export POINTSMAN_DATABASE_URL=postgres://localhost/shop POINTSMAN_NATS_URL=nats://localhost:4222",
		"go run ./cmd/pointsman migrate up", "go run ./cmd/bridge --config parcels.yaml", "go run ./cmd/worker --config parcels.yaml")
	if status, out := own.run("pointsman", "migrate", "up"); status != 0 {
		s.Errorf("migrate up: %d\n%s", status, out)
	}
	bridge, worker := own.start("bridge", "bridge", "--config", "parcels.yaml"), own.start("worker", "worker", "--config", "parcels.yaml")
	own.ready(worker.address(own), 200, "ready")
	own.ready(bridge.address(own), 503, "PARCELS") // a stream that nobody has made yet, said with its reason
	for _, args := range [][]string{
		{"create", "approval:order-789", "--timeout", "2h"}, {"send", "approval:order-789", `'{"approved": true}'`}, {"get", "approval:order-789"},
	} {
		next("go run ./cmd/pointsman triggers " + strings.Join(args, " "))
		args[len(args)-1] = strings.Trim(args[len(args)-1], "'")
		if status, out := own.run("pointsman", append([]string{"triggers"}, args...)...); status != 0 {
			own.Errorf("triggers %s: %d\n%s", args, status, out)
		}
	}
	own.must(bridge.stop(patience))
	own.must(worker.stop(patience))
}
