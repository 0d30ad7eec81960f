//go:build unix && !linux

package pgserver

import "syscall"

// attributes of the server process: its own group, since ^C at the terminal is for us to handle. There is no death signal here: a server
// whose owner was killed runs on until its temporary directory is swept by the next start, or until it is stopped by hand.
func attributes(a account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential(), Setpgid: true}
}
