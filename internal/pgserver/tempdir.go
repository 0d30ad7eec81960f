package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	tempPattern = "pointsman-pg-*"
	sweepAge    = time.Minute // younger directories may belong to a start that has not locked them yet
)

// ErrInUse says that another process runs a server on the same data directory.
var ErrInUse = errors.New("in use by another process")

// lockFile opens and locks a file without waiting. The lock ends when the file is closed, or this process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// tempDir is a temporary directory that is known to be abandoned once nobody holds its lock.
type tempDir struct {
	path string
	lock *os.File
}

func newTempDir(base string) (*tempDir, error) {
	sweep(base)
	path, err := os.MkdirTemp(base, tempPattern)
	if err != nil {
		return nil, err
	}
	t := &tempDir{path: path}
	if err = os.Chmod(path, 0o711); err == nil { // the account passes through to what it owns
		t.lock, err = lockFile(filepath.Join(path, "lock"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return t, nil
}

func (t *tempDir) remove() error {
	return errors.Join(os.RemoveAll(t.path), t.lock.Close())
}

// sweep removes the temporary directories of owners that were killed. It is best effort, and looks only at directories of our own user.
func sweep(base string) {
	paths, _ := filepath.Glob(filepath.Join(base, tempPattern)) // the pattern is well formed
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		lock, err := lockFile(filepath.Join(path, "lock"))
		if err != nil {
			continue
		}
		_ = (&tempDir{path: path, lock: lock}).remove()
	}
}
