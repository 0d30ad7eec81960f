package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// watched is a directory with a file in it that is watched.
type watched struct {
	*testing.T
	dir     string
	changes chan struct{}
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, name) }

func (w *watched) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *watched) write(name, text string) {
	w.Helper()
	w.must(os.WriteFile(w.path(name), []byte(text), 0o600))
}

// watch calls prepare, and then watches config.yaml.
func watch(t *testing.T, prepare func(*watched)) *watched {
	t.Helper()
	t.Parallel()
	w := &watched{T: t, dir: t.TempDir(), changes: make(chan struct{}, 100)}
	prepare(w)
	watcher, err := New(w.path("config.yaml"), 5*time.Millisecond)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); watcher.Run(ctx, func() { w.changes <- struct{}{} }) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// told waits until the change is told, and takes what may be told of it twice when the machine is slow.
func (w *watched) told(what string) {
	w.Helper()
	select {
	case <-w.changes:
	case <-time.After(patience):
		w.Fatalf("not told of %s", what)
	}
	for {
		select {
		case <-w.changes:
		case <-time.After(100 * time.Millisecond):
			return
		}
	}
}

func plain(w *watched) { w.write("config.yaml", "1") }

func TestWrite(t *testing.T) {
	w := watch(t, plain)
	w.write("config.yaml", "2")
	w.told("a write")
}

// Editors write another file and rename it, or rename the old one away first.
func TestRename(t *testing.T) {
	w := watch(t, plain)
	for range 2 {
		w.write("config.yaml~", "2")
		w.must(os.Rename(w.path("config.yaml~"), w.path("config.yaml")))
		w.told("a rename")
	}
	w.must(os.Rename(w.path("config.yaml"), w.path("backup")))
	w.told("its end")
	w.write("config.yaml", "3")
	w.told("its return")
	w.write("config.yaml", "4")
	w.told("a write to the new file")
}

// Kubernetes has config.yaml -> ..data/config.yaml and ..data -> ..1, and swaps ..data.
func TestKubernetes(t *testing.T) {
	version := func(w *watched, n string) {
		w.must(os.Mkdir(w.path(".."+n), 0o700))
		w.write(".."+n+"/config.yaml", n)
	}
	w := watch(t, func(w *watched) {
		version(w, "1")
		w.must(os.Symlink("..1", w.path("..data")))
		w.must(os.Symlink("..data/config.yaml", w.path("config.yaml")))
	})
	for _, n := range []string{"2", "3"} {
		version(w, n)
		w.must(os.Symlink(".."+n, w.path("..data_tmp")))
		old, err := os.Readlink(w.path("..data"))
		w.must(err)
		w.must(os.Rename(w.path("..data_tmp"), w.path("..data")))
		w.must(os.RemoveAll(w.path(old)))
		w.told("a swap")
	}
}

// A link into another directory, whose file is written.
func TestLink(t *testing.T) {
	w := watch(t, func(w *watched) {
		w.must(os.Mkdir(w.path("etc"), 0o700))
		w.write("etc/real.yaml", "1")
		w.must(os.Symlink("etc/real.yaml", w.path("config.yaml")))
	})
	w.write("etc/real.yaml", "2")
	w.told("a write to what it leads to")
}

// What happens to other files is no change, however much of it there is, nor are the file's rights.
func TestConcerns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := New(file, Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.fs.Close() }()
	for e, want := range map[fsnotify.Event]bool{
		{Name: file, Op: fsnotify.Write}:                              true,
		{Name: file, Op: fsnotify.Chmod}:                              false,
		{Name: filepath.Join(dir, "other.yaml"), Op: fsnotify.Write}:  false,
		{Name: filepath.Join(dir, "other.yaml"), Op: fsnotify.Rename}: false,
	} {
		if got := w.concerns(e); got != want {
			t.Errorf("%v: %t", e, got)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if !w.concerns(fsnotify.Event{Name: dir, Op: fsnotify.Remove}) {
		t.Error("a file that leads nowhere any more has changed")
	}
}

func TestNoDirectory(t *testing.T) {
	t.Parallel()
	if _, err := New(filepath.Join(t.TempDir(), "none", "config.yaml"), Quiet); err == nil {
		t.Error("no error")
	}
}
