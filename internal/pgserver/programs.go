package pgserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPrograms says that this machine has no Postgres server programs, and how to get them.
var ErrNoPrograms = errors.New("no PostgreSQL server programs (postgres, initdb) found: " +
	"install them with \"apt-get install postgresql\" or \"brew install postgresql\"")

// installations are the directories of server programs that packages do not put into PATH.
var installations = []string{
	"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
	"/usr/pgsql-*/bin",                  // the PostgreSQL project's RPMs
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
}

// Programs is the directory of this machine's server programs, which are installed where there are none, as [Install] does.
func Programs(ctx context.Context) (string, error) { return findPrograms(ctx, true) }

func findPrograms(ctx context.Context, install bool) (string, error) {
	bin, err := locate(ctx)
	if err == nil || !install {
		return bin, err
	}
	if ierr := Install(ctx); ierr != nil {
		return "", errors.Join(err, ierr)
	}
	return locate(ctx)
}

// locate looks in PATH, where pg_config points, and in the places that packages use, the newest version first.
func locate(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); complete(dir) {
			return dir, nil
		}
	}
	for _, pattern := range installations {
		dirs, _ := filepath.Glob(pattern) // the patterns are well formed
		slices.SortFunc(dirs, func(a, b string) int { return versionOf(b) - versionOf(a) })
		if i := slices.IndexFunc(dirs, complete); i >= 0 {
			return dirs[i], nil
		}
	}
	return "", ErrNoPrograms
}

// complete says whether dir has the programs that we run; a client-only installation has a bin directory too.
func complete(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var digits = regexp.MustCompile(`[0-9]+`)

// versionOf is the major version in a directory's name; a name without one is what the package manager calls current.
func versionOf(dir string) int {
	v, err := strconv.Atoi(digits.FindString(dir))
	if err != nil {
		return 1 << 10
	}
	return v
}
