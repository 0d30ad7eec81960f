//go:build unix && !linux

package pgtest

import "syscall"

// attributes of a process. Only Linux lets it end with this one.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as}
}
