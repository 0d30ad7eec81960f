package devenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/dag"
)

// banner says where everything is, and what can be done with it.
func (e *environment) banner() {
	e.say("")
	e.say("  bridge    http://%s   the dashboard; /readyz /metrics", e.cfg.HTTP.Addr)
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
}

// up waits until the bridge and the worker can do their work, tells other shells where they are, and says so: what is typed from then on is answered.
// While they cannot, because of a stream that is missing for example, their logs say why.
func (e *environment) up(ctx context.Context) error {
	if e.Traffic > 0 && e.EnvFile == "" {
		return nil
	}
	for _, addr := range []string{e.cfg.HTTP.Addr, e.cfg.Worker.HTTPAddr} {
		for answers(addr)(ctx) != nil {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(upPoll):
			}
		}
	}
	if e.EnvFile != "" {
		if err := e.writeEnv(); err != nil {
			return err
		}
	}
	if e.Traffic == 0 {
		e.say("Outcomes are printed here. Ctrl-C stops everything.")
		e.say("")
	}
	return nil
}

// writeEnv writes the addresses as a shell reads them. The file is there, whole, or it is not.
func (e *environment) writeEnv() error {
	var text strings.Builder
	for _, v := range [][2]string{
		{"POINTSMAN_DATABASE_URL", e.DatabaseURL}, {"POINTSMAN_NATS_URL", e.NATSURL}, {"POINTSMAN_URL", "http://" + e.cfg.HTTP.Addr},
	} {
		fmt.Fprintf(&text, "export %s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
	}
	partial := e.EnvFile + ".partial"
	if err := os.WriteFile(partial, []byte(text.String()), 0o600); err != nil { // the URL may have a password
		return err
	}
	if err := os.Rename(partial, e.EnvFile); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	e.envWritten = true
	return nil
}

// own says what a configuration of one's own listens to, and whom it asks.
func (e *environment) own() {
	for _, r := range e.cfg.Routes {
		e.say("  route     %s reads %s", r.Name, strings.Join(r.Subjects, ", "))
	}
	for _, m := range e.cfg.Machines {
		e.say("  machine   %s asks for its steps on %s", m.Name, e.space.Step(m.Name, "*"))
	}
	for _, f := range e.cfg.Flows {
		e.say("  flow      %s version %d calls %s", f.Name, f.Version, cmp.Or(strings.Join(f.Subjects(dag.Call), ", "), "nobody"))
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
