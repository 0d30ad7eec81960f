package pgserver_test

import (
	"testing"

	"github.com/pointsman/pointsman/internal/pgserver"
)

// TestCrash: what was committed is there after it, clients have to connect again, and the server still stops as it should.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	url := s.URL()
	before := connect(t, url)
	if _, err := before.Exec(t.Context(), "create table kept as select 'committed' as what"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn := connect(t, url)
		if err := s.Crash(); err != nil {
			t.Fatal(err)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Error("a connection outlived the server")
		}
		if got := query(t, connect(t, s.URL()), "select what from kept"); got != "committed" || s.URL() != url {
			t.Errorf("after the crash: %q at %s, was at %s", got, s.URL(), url)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
