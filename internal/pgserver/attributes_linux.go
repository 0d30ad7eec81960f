package pgserver

import "syscall"

// attributes of the server process: its own group, since ^C at the terminal is for us to handle, and a fast shutdown when we die.
func attributes(a account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential(), Setpgid: true, Pdeathsig: syscall.SIGINT}
}
