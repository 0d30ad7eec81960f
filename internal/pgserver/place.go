package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	versionFile = "PG_VERSION"         // what a data directory always has
	awayDir     = "/var/lib/pointsman" // for data that the account cannot reach where it was wanted
	maxSocket   = 103                  // bytes of a socket's path: 107 on Linux, 103 on macOS
)

// place is the files of one server: locked for us until close.
type place struct {
	account   account
	data      string
	socket    string // directory of the socket
	temporary bool
	lock      *os.File
	temps     []*tempDir
}

func openPlace(dir, temp string) (*place, error) {
	p := &place{temporary: dir == ""}
	if err := p.open(dir, temp); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *place) open(dir, temp string) (err error) {
	if p.account, err = chooseAccount(dir); err != nil {
		return err
	}
	if p.temporary {
		t, err := p.temp(temp, os.TempDir(), "/var/tmp")
		if err != nil {
			return err
		}
		dir = filepath.Join(t.path, "data")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	// Beside the directory, which has to be empty for initdb. The kernel drops the lock with us; the file stays, since removing a
	// lock file lets two processes each lock a file of that name.
	if p.lock, err = lockFile(dir + ".lock"); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if p.data, err = p.settle(dir); err != nil {
		return err
	}
	p.socket = p.data
	if len(filepath.Join(p.data, ".s.PGSQL.65535")) > maxSocket {
		t, err := p.temp("/tmp", "/var/tmp")
		if err != nil {
			return err
		}
		p.socket = filepath.Join(t.path, "s")
		return p.account.own(p.socket)
	}
	return nil
}

// settle returns the directory that will hold the data of dir: itself, or where it links to when the account cannot reach it.
func (p *place) settle(dir string) (string, error) {
	if target, err := os.Readlink(dir); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(dir), target)
		}
		return target, nil
	}
	if p.account.reaches(filepath.Dir(dir)) {
		return dir, nil
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty directory gives way to the link, no other does
		return "", fmt.Errorf("user %s, who runs the server, cannot reach the data: %w", p.account.name, err)
	}
	if err := os.MkdirAll(awayDir, 0o755); err != nil {
		return "", err
	}
	home, err := os.MkdirTemp(awayDir, "pg-*")
	if err != nil {
		return "", err
	}
	if err = os.Chmod(home, 0o711); err != nil {
		return "", err
	}
	data := filepath.Join(home, "data")
	return data, os.Symlink(data, dir)
}

// initdb makes the data directory complete or not at all: a start that is killed leaves nothing that looks like data.
func (p *place) initdb(ctx context.Context, bin string) error {
	if _, err := os.Stat(filepath.Join(p.data, versionFile)); err == nil {
		return nil
	}
	fresh := p.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	err := p.runInitdb(ctx, bin, fresh, "C.UTF-8")
	if err != nil && strings.Contains(err.Error(), "locale") { // C.UTF-8 is not everywhere
		err = p.runInitdb(ctx, bin, fresh, "C")
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, p.data); err != nil { // takes the place of an empty directory, of no other
		return errors.Join(fmt.Errorf("%s is neither empty nor a data directory: %w", p.data, err), os.RemoveAll(fresh))
	}
	return nil
}

func (p *place) runInitdb(ctx context.Context, bin, dir, locale string) error {
	if err := p.account.own(dir); err != nil {
		return err
	}
	args := []string{
		"-D", dir, "-U", superuser, "-E", "UTF8", "--locale=" + locale,
		"--auth-local=trust", "--auth-host=scram-sha-256",
	}
	if p.temporary {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), args...)
	cmd.Dir, cmd.Env = dir, environment()
	cmd.SysProcAttr = attributes(p.account)
	cmd.WaitDelay = time.Second
	runtime.LockOSThread() // see spawn: the death signal must not come from a thread that another goroutine ends
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (p *place) temp(bases ...string) (*tempDir, error) {
	for _, base := range bases {
		if base == "" || !p.account.reaches(base) {
			continue
		}
		t, err := newTempDir(base)
		if err != nil {
			return nil, err
		}
		p.temps = append(p.temps, t)
		return t, nil
	}
	return nil, fmt.Errorf("user %s, who runs the server, cannot reach any of %s", p.account.name, strings.Join(bases, ", "))
}

func (p *place) close() error {
	var errs []error
	for _, t := range p.temps {
		errs = append(errs, t.remove())
	}
	if p.lock != nil {
		errs = append(errs, p.lock.Close())
	}
	return errors.Join(errs...)
}
