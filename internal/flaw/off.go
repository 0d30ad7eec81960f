//go:build !sabotage

package flaw

// Is reports whether this is to be broken: never.
func Is(string) bool { return false }
