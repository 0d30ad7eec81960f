package pgserver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	dirs := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin"}
	slices.SortFunc(dirs, func(a, b string) int { return versionOf(b) - versionOf(a) })
	if want := "/usr/lib/postgresql/17/bin"; dirs[0] != want {
		t.Errorf("newest is %s, want %s", dirs[0], want)
	}
	if versionOf("/opt/homebrew/opt/postgresql/bin") <= versionOf("/opt/homebrew/opt/postgresql@17/bin") {
		t.Error("the package manager's current version is not first")
	}
}

func TestLocateInPath(t *testing.T) {
	dir, link := t.TempDir(), t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "postgres"), filepath.Join(link, "postgres")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", link)
	want, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := locate(t.Context()); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "postgres"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if complete(dir) {
		t.Error("complete without initdb")
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	old := func(name string) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	abandoned, held, young := old("pointsman-pg-1"), old("pointsman-pg-2"), old("pointsman-pg-3")
	lock, err := lockFile(filepath.Join(held, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	for _, path := range []string{abandoned, held} {
		past := time.Now().Add(-2 * sweepAge)
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	sweep(base)
	for path, want := range map[string]bool{abandoned: false, held: true, young: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %t", filepath.Base(path), err, want)
		}
	}
}
