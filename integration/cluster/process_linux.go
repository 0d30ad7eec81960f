package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// attributes of a process that ends with this one.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// children are the processes below one, whatever groups they have made for themselves.
func children(pid int) (all []int, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			below, err := children(child)
			if err != nil {
				return nil, err
			}
			all = append(append(all, child), below...)
		}
	}
	return all, nil
}

// state of a process or of a thread: R, S, T …; 0 where there is none.
func stateOf(stat string) byte {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0
	}
	if _, rest, ok := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(" ")); ok {
		return rest[0]
	}
	return 0
}

// gone says whether a process has ended, waited for or not.
func gone(pid int) bool {
	s := stateOf(fmt.Sprintf("/proc/%d/stat", pid))
	return s == 0 || s == 'Z' || s == 'X'
}

// still says whether a process is stopped, or has ended.
func still(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		if s := stateOf(thread); s != 'T' && s != 't' && s != 'Z' && s != 0 {
			return false
		}
	}
	return true
}
