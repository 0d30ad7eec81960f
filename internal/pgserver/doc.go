// Package pgserver runs a private Postgres: a child process on a Unix socket that only this user and root can reach, made for tests and for
// "pointsman dev".
//
// It uses the server programs of the machine and needs nothing else: no HOME, no locale, no service manager. As root, which Postgres
// refuses to run as, it runs them as the user postgres, else nobody. On Linux the server stops when this process dies, however it dies.
package pgserver
