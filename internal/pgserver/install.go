package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

const (
	installLock    = "/run/pointsman-install.lock"
	installTimeout = 5 * time.Minute
	installBackoff = 5 * time.Minute // how long a failure stands for the processes that waited for it
)

// Install installs the server programs with apt-get, as root on a Debian-like system, and returns when they are there. Processes that call
// it together do it once. With POINTSMAN_INSTALL_POSTGRES=never, or anywhere else, it does nothing and says why.
func Install(ctx context.Context) error {
	if os.Getenv("POINTSMAN_INSTALL_POSTGRES") == "never" {
		return errors.New("not installed: POINTSMAN_INSTALL_POSTGRES is never")
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New("not installed: that needs root and apt-get")
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	return installOnce(ctx, installLock)
}

// installOnce lets one process install; those that waited find the programs, or the note that it failed.
func installOnce(ctx context.Context, path string) error {
	lock, err := awaitLock(ctx, path)
	if err != nil {
		return fmt.Errorf("wait for another installation: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if _, err := locate(ctx); err == nil {
		return nil // by whom we waited for
	}
	if info, err := lock.Stat(); err == nil && info.Size() > 0 && time.Since(info.ModTime()) < installBackoff {
		return fmt.Errorf("not installed: it failed a moment ago, see %s", path)
	}
	err = aptInstall(ctx)
	_ = lock.Truncate(0) // the note is a courtesy to those that wait
	if err != nil {
		_, _ = lock.WriteAt([]byte(err.Error()), 0)
	}
	return err
}

func aptInstall(ctx context.Context) error {
	fmt.Fprintln(os.Stderr, "no PostgreSQL server programs found: installing them with apt-get (POINTSMAN_INSTALL_POSTGRES=never forbids it)")
	for _, args := range [][]string{
		{"update"},
		{"install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", "postgresql"},
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		// Only the programs are wanted: at run level 1 the package does not start a server of its own.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(out))
		}
	}
	return nil
}

func awaitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := lockFile(path)
		if !errors.Is(err, ErrInUse) {
			return f, err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func lastLine(out []byte) []byte {
	out = bytes.TrimSpace(out)
	return out[bytes.LastIndexByte(out, '\n')+1:]
}
