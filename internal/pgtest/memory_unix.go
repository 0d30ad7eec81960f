//go:build unix && !linux

package pgtest

// memory is where files are in the memory of the machine.
func memory() string { return "" }
