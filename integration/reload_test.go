package integration

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSIGHUPReloadsTheRoutes: also when the text is the same, and never to the harm of what runs.
func TestSIGHUPReloadsTheRoutes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.must(createStreams(s))
	routes := func(names ...string) string {
		text := "routes:\n"
		for _, name := range names {
			text += fmt.Sprintf("  - {name: %s, stream: ORDERS, subject: \"orders.*.%s\", start: {machine: order}}\n", name, name)
		}
		return s.file("routes.yaml", text)
	}
	bridge := s.start("bridge", "bridge", "--config", routes("placed"))
	addr := bridge.address(s)
	s.ready(addr, http.StatusOK, "ready")
	reloads := func(n int) {
		t.Helper()
		want := fmt.Sprintf(`pointsman_config_reloads_total{result="ok"} %d`, n)
		s.until(20*time.Second, want, func() (bool, string) {
			_, metrics := s.get("http://" + addr + "/metrics")
			return strings.Contains(metrics, want+"\n"), bridge.out.String()
		})
	}
	s.must(bridge.cmd.Process.Signal(syscall.SIGHUP))
	reloads(1)
	routes("placed", "returned")
	reloads(2)
	for _, subject := range []string{"orders.1.placed", "orders.1.returned"} {
		_, err := s.js.Publish(s.Context(), subject, []byte(`{}`))
		s.must(err)
	}
	s.until(20*time.Second, "both routes start", func() (bool, string) {
		return s.count(`select count(*) from pointsman.v_instances`) == 2, bridge.out.String()
	})
	s.must(bridge.stop(30 * time.Second))
}
