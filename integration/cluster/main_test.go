package cluster_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain: whole clusters take some minutes of both cores, so they are asked for; `make guarantees` does.
func TestMain(m *testing.M) {
	if os.Getenv("POINTSMAN_TEST_GUARANTEES") == "" {
		fmt.Println("skipped: make guarantees, or POINTSMAN_TEST_GUARANTEES=1, runs them")
		return
	}
	os.Exit(m.Run())
}
