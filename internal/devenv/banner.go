package devenv

import (
	"os"
	"path/filepath"
	"strings"
)

// banner says where everything is, and what can be done with it.
func (e *environment) banner() {
	e.say("")
	e.say("  bridge    http://%s   /readyz /metrics", e.cfg.HTTP.Addr)
	e.say("  worker    http://%s   /readyz /metrics", e.cfg.Worker.HTTPAddr)
	e.say("  NATS      %s", e.NATSURL)
	e.say("  Postgres  psql '%s'   select * from %s.v_instances;", e.DatabaseURL, e.cfg.Database.Schema)
	if e.DataDir != "" {
		e.say("  data      %s", e.DataDir)
	}
	switch {
	case e.Config != "":
		e.own()
	case e.Traffic == 0:
		e.invitation()
	}
	e.say("")
	if e.Traffic == 0 {
		e.say("Outcomes are printed here. Ctrl-C stops everything.")
		e.say("")
	}
}

// own says what a configuration of one's own listens to, and whom it asks.
func (e *environment) own() {
	for _, r := range e.cfg.Routes {
		e.say("  route     %s reads %s", r.Name, strings.Join(r.Subjects, ", "))
	}
	for _, m := range e.cfg.Machines {
		e.say("  machine   %s asks for its steps on %s", m.Name, e.space.Step(m.Name, "*"))
	}
}

// invitation has lines to paste.
func (e *environment) invitation() {
	program := "go run ./cmd/pointsman"
	if exe, err := os.Executable(); err == nil && !isTemporary(exe) {
		program = exe
	}
	at := ""
	if e.NATSURL != "nats://127.0.0.1:4222" {
		at = " --nats-url " + e.NATSURL
	}
	e.say("")
	e.say("An order waits for its items and its payment. In another terminal, place one, pack it and pay it:")
	e.say("")
	e.say(`  %s publish%s orders.1001.placed '{"amount": 42, "items": 1}'`, program, at)
	e.say(`  %s publish%s orders.1001.item '{"sku": "cup"}'`, program, at)
	e.say(`  %s publish%s payments.1001.confirmed '{"amount": 42}'`, program, at)
}

// isTemporary: a program that go run built is gone when it ends.
func isTemporary(exe string) bool {
	rel, err := filepath.Rel(os.TempDir(), exe)
	return err == nil && filepath.IsLocal(rel)
}
