// Package programs builds the programs that tests run, once for all tests that want the same of the same source.
package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// NATSServer is the nats-server of the version that go.mod names.
const NATSServer = "github.com/nats-io/nats-server/v2"

// Options of a build.
type Options struct {
	Version string // what pointsman's programs say with --version; "" leaves it to the Go tool
	Tags    string // build tags, with commas
	// Static programs run in an empty image. Others are built as "go build" and "go run" do without flags, whose packages need not be compiled again.
	Static bool
}

// Build builds packages with a main, each an import path or a path below the module's root ("./cmd/bridge"), and returns the directory that
// has the programs, each under the last part of its package's path. The directory stays, so that the next run of the tests links only what has changed; it
// is of this checkout, these options and these packages alone. A process builds each once, as its own source does not change either.
func Build(ctx context.Context, o Options, packages ...string) (dir string, err error) {
	once, _ := builds.LoadOrStore(fmt.Sprint(o, packages), sync.OnceValues(func() (string, error) { return build(context.WithoutCancel(ctx), o, packages) }))
	return once.(func() (string, error))()
}

var builds sync.Map // of functions that build, by what they build

func build(ctx context.Context, o Options, packages []string) (dir string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	args := []string{"build", "-buildvcs=false", "-tags", o.Tags}
	env := os.Environ()
	if o.Static {
		args = append(args, "-trimpath")
		env = append(env, "CGO_ENABLED=0")
	}
	if o.Version != "" {
		args = append(args, "-ldflags", "-X github.com/pointsman/pointsman/internal/app.stamp="+o.Version)
	}
	sum := sha256.Sum256([]byte(strings.Join(append(append([]string{root}, args...), packages...), "\x00")))
	dir = filepath.Join(os.TempDir(), "pointsman-programs-"+strconv.Itoa(os.Getuid()), hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build programs: %w", err)
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", fmt.Errorf("build programs: %w", err)
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, "go", append(append(args, "-o", dir+"/"), packages...)...)
	cmd.Dir = root
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", strings.Join(packages, " "), err, out)
	}
	return dir, nil
}

// Root is the directory of the module that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the module: no go.mod above the working directory")
		}
	}
}

// lock waits for the other processes that build the same.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// majorVersion is the end of an import path that is no name.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// Name of the program that a package is built to.
func Name(pkg string) string {
	name := path.Base(pkg)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(pkg))
	}
	return name
}
