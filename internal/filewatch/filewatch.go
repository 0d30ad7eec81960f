// Package filewatch tells when a file may have another text.
package filewatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Quiet is how long a file has to rest before its text is taken for whole: editors and copies write it in several steps.
const Quiet = 250 * time.Millisecond

// Watcher of one file. It watches directories, as a file that is replaced by a rename is another file under the name: that of the name, and
// where the name is a link, that of what it leads to. Kubernetes swaps a link on the way.
type Watcher struct {
	file  string
	real  string // what file leads to; "": nothing
	dirs  map[string]bool
	fs    *fsnotify.Watcher
	quiet time.Duration
}

// New watches a file, from the moment that it returns. [Watcher.Run] has to follow.
func New(file string, quiet time.Duration) (*Watcher, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", file, err)
	}
	w := &Watcher{file: file, dirs: map[string]bool{}, fs: fs, quiet: quiet}
	if err := w.follow(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", file, err), fs.Close())
	}
	return w, nil
}

// Run calls changed when the file rests after it may have changed, until ctx is cancelled.
func (w *Watcher) Run(ctx context.Context, changed func()) {
	defer func() { _ = w.fs.Close() }()
	rest := time.NewTimer(w.quiet)
	rest.Stop()
	for {
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case e, open := <-w.fs.Events:
			if !open {
				return
			}
			if w.concerns(e) {
				rest.Reset(w.quiet)
			}
		case err := <-w.fs.Errors: // events may have been dropped
			if err != nil {
				rest.Reset(w.quiet)
			}
		case <-rest.C:
			_ = w.follow() // where the file is gone its directory is watched for its return
			changed()
		}
	}
}

// concerns says whether an event in one of the directories is about the file.
func (w *Watcher) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	name := filepath.Clean(e.Name)
	return name == w.file || name == w.real || w.resolve() != w.real
}

// resolve the links on the way to the file; "": it leads nowhere at the moment.
func (w *Watcher) resolve() string {
	real, err := filepath.EvalSymlinks(w.file)
	if err != nil {
		return ""
	}
	return real
}

// follow the file to where it is now.
func (w *Watcher) follow() error {
	w.real = w.resolve()
	want := map[string]bool{filepath.Dir(w.file): true}
	if w.real != "" {
		want[filepath.Dir(w.real)] = true
	}
	for dir := range w.dirs {
		if !want[dir] {
			_ = w.fs.Remove(dir) // it may be gone, and its watch with it
		}
	}
	w.dirs = want
	var errs []error
	for dir := range want {
		errs = append(errs, w.fs.Add(dir)) // again is nothing, unless the directory was made again
	}
	return errors.Join(errs...)
}
