//go:build unix && !linux

package cluster

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attributes of a process. Only Linux lets it end with this one.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true}
}

// children are the processes below one, whatever groups they have made for themselves.
func children(pid int) (all []int, err error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // there are none
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, field := range strings.Fields(string(out)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		below, err := children(child)
		if err != nil {
			return nil, err
		}
		all = append(append(all, child), below...)
	}
	return all, nil
}

// gone says whether a process has ended.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// still is not known here: a signal takes effect before the process runs again.
func still(int) bool { return true }
