package cluster

import "testing"

// A port is given to one member, of one cluster: others would listen on it while its owner is killed.
func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	given := map[int]bool{}
	for range 1000 { // of 22,000: some twenty twice, without the claims
		port, claim := freePort()
		if claim == nil {
			t.Skip("this system has no other loopback address")
		}
		defer claim.Close() //nolint:errcheck // the test is over
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
	}
}
