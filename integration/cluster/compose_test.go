package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/integration/images"
	"github.com/pointsman/pointsman/integration/programs"
)

// TestCompose: deploy/compose.yaml as docs/deployment.md has it. The image is built, the whole stack comes up on it, the page's check of a fresh
// deployment goes through it word for word, and a stop drains: bridges and workers end with 0. Prometheus and Grafana are not in it.
func TestCompose(t *testing.T) {
	docker, err := connectDocker(t.Context())
	if errors.Is(err, errNoDocker) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = docker.Close() }()
	s := newStack(t)
	for variable, image := range map[string]func() (string, error){
		"NATS_IMAGE":     func() (string, error) { return images.NATS(t.Context(), docker) },
		"POSTGRES_IMAGE": func() (string, error) { return images.Postgres(t.Context(), docker) },
	} {
		name, err := image()
		if err != nil {
			t.Fatal(err)
		}
		s.env = append(s.env, variable+"="+name)
	}
	s.compose("down", "--volumes", "--timeout", "0") // what a test that was killed has left
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.output("logs", "--no-color", "--tail", "100"))
		}
		s.compose("down", "--volumes", "--timeout", "5")
		s.docker("image", "rm", "--force", s.image)
	})
	s.compose("build", "bridge-1")
	s.compose("up", "--detach", "--no-build")

	check := s.run(s.shell(documented(t)))
	if done := len(regexp.MustCompile(`(?m)^done$`).FindAllString(check, -1)); done != 10 {
		t.Errorf("%d of 10 are done:\n%s", done, check)
	}
	for _, want := range []string{`(?m)^delivered +10$`, `(?m)^pending +0$`, `, a duplicate: the stream had it already`} {
		if !regexp.MustCompile(want).MatchString(check) {
			t.Errorf("there is no %s in:\n%s", want, check)
		}
	}

	s.outcomes(10)
	s.compose("stop", "bridge-1", "bridge-2", "worker-1", "worker-2")
	for _, service := range []string{"bridge-1", "bridge-2", "worker-1", "worker-2"} {
		id := strings.TrimSpace(s.output("ps", "--all", "--quiet", service))
		if status := s.docker("inspect", "--format", "{{.State.ExitCode}}", id); strings.TrimSpace(status) != "0" {
			t.Errorf("%s ends with %s", service, status)
		}
	}
}

// stack is a checkout with what make dist makes, and how Compose is called there.
type stack struct {
	*testing.T
	dir     string
	image   string   // that is built
	ports   [2]int   // of the bridges
	command []string // Compose
	env     []string
}

func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{T: t, dir: t.TempDir()}
	for i := range s.ports {
		port, claim := freePort()
		s.ports[i] = port
		if claim != nil {
			_ = claim.Close() // Docker takes the port on all addresses
		}
	}
	switch {
	case exec.CommandContext(t.Context(), "docker", "compose", "version").Run() == nil:
		s.command = []string{"docker", "compose"}
	case exec.CommandContext(t.Context(), "docker-compose", "version").Run() == nil:
		s.command = []string{"docker-compose"}
	default:
		if err := without(errors.New("neither docker compose nor docker-compose runs")); errors.Is(err, errNoDocker) {
			t.Skip(err)
		} else {
			t.Fatal(err)
		}
	}
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	built, err := programs.Build(t.Context(), programs.Options{Static: true}, "./cmd/pointsman", "./cmd/bridge", "./cmd/worker")
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"deploy": filepath.Join(root, "deploy"), "dist": built} {
		if err := os.CopyFS(filepath.Join(s.dir, name), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "dist", "ca-certificates.crt"), certificates, 0o644); err != nil {
		t.Fatal(err)
	}
	// The project is this checkout's, so that the next test finds what one that was killed has left.
	project := fmt.Sprintf("pointsman-test-%x", sha256.Sum256([]byte(root)))[:24]
	s.image = project + ":local"
	s.env = append(os.Environ(), "COMPOSE_PROJECT_NAME="+project, "COMPOSE_FILE="+filepath.Join(s.dir, "deploy", "compose.yaml"),
		"POINTSMAN_IMAGE="+s.image, "POINTSMAN_TARGET=prebuilt", "POINTSMAN_ADMIN_TOKEN=a-token-of-some-length", "POSTGRES_PASSWORD=only-for-this-test",
		fmt.Sprintf("BRIDGE_PORT=%d", s.ports[0]), fmt.Sprintf("BRIDGE_2_PORT=%d", s.ports[1]))
	return s
}

// documented is the script of docs/deployment.md.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/deployment.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindSubmatch(text)
	if script == nil {
		t.Fatal("docs/deployment.md has no script")
	}
	return string(script[1])
}

// shell runs a script that says docker compose, whichever it is here.
func (s *stack) shell(script string) *exec.Cmd {
	shim := fmt.Sprintf("docker() { shift 3; %s \"$@\"; }\n", strings.Join(s.command, " ")) // docker compose -f deploy/compose.yaml
	ctx, cancel := context.WithTimeout(s.Context(), startTimeout)
	s.Cleanup(cancel)
	return exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", shim+script)
}

func (s *stack) compose(args ...string) { s.Helper(); s.output(args...) }

func (s *stack) output(args ...string) string { s.Helper(); return s.call(s.command, args) }

func (s *stack) docker(args ...string) string { s.Helper(); return s.call([]string{"docker"}, args) }

// call a command, also when the test is over.
func (s *stack) call(command, args []string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), startTimeout)
	defer cancel()
	words := slices.Concat(command, args)
	return s.run(exec.CommandContext(ctx, words[0], words[1:]...)) //nolint:gosec // what this file says
}

// outcomes waits until the bridges have published so many together.
func (s *stack) outcomes(want int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for published := -1; published != want; {
		published = 0
		for _, port := range s.ports {
			text := s.run(exec.CommandContext(ctx, "curl", "-fsS", fmt.Sprintf("http://127.0.0.1:%d/metrics", port)))
			found := regexp.MustCompile(`(?m)^pointsman_outbox_published_total (\d+)$`).FindStringSubmatch(text)
			if found == nil {
				s.Fatalf("no count of publications in:\n%s", text)
			}
			n, err := strconv.Atoi(found[1])
			if err != nil {
				s.Fatal(err)
			}
			published += n
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("%d outcomes are published, want %d", published, want)
		}
	}
}

// run is what a command prints.
func (s *stack) run(c *exec.Cmd) string {
	s.Helper()
	var out, problems bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = s.dir, s.env, &out, &problems
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		s.Fatalf("%s: %v\n%s\n%s", strings.Join(c.Args, " "), err, &out, &problems)
	}
	return out.String()
}
