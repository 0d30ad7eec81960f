//go:build sabotage

package flaw

import "os"

var broken = os.Getenv("POINTSMAN_SABOTAGE")

// Is reports whether this is to be broken.
func Is(what string) bool { return what == broken }
