package guarantees

import (
	"fmt"
	"os"
	"testing"
)

// long runs take some minutes of both cores, so they are asked for; `make guarantees` does. The short form has every guarantee, with fewer plays
// between fewer faults.
var long = os.Getenv("POINTSMAN_TEST_GUARANTEES") != ""

func TestMain(m *testing.M) {
	if !long {
		fmt.Println("the short form: make guarantees, or POINTSMAN_TEST_GUARANTEES=1, runs the long one")
	}
	os.Exit(m.Run())
}

// orLess is n in the long form, and a fifth of it in the short one, at least one.
func orLess(n int) int {
	if long {
		return n
	}
	return max(1, n/5)
}
