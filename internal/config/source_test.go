package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

const sourceRoute = "routes:\n  - {name: a, stream: S, subject: a, signal: s, correlation_key: k}\n"

// reloaded is what a configuration becomes when its file gets another text.
func reloaded(t *testing.T, before, after string) (*Config, []string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pointsman.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	c, err := Load(file, noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	c.MigrateOnStart = true // what a program changes for itself is no change of the file
	write(after)
	now, err := c.Source().Reread()
	if err != nil {
		t.Fatal(err)
	}
	if now.Same(c.Source()) != (before == after) {
		t.Error("does not know whether the text is the same")
	}
	return c.Reload(now)
}

func TestReload(t *testing.T) {
	t.Parallel()
	next, later, err := reloaded(t, sourceRoute, "signals_route: false\n"+sourceRoute+"  - {name: b, stream: S, subject: b, signal: s, correlation_key: k, project: own}\n")
	if err != nil || later != nil {
		t.Fatal(later, err)
	}
	if len(next.Routes) != 2 || next.SignalsRoute || !next.MigrateOnStart || next.Routes[1].Project != "own" {
		t.Errorf("got %+v", next)
	}
	// What the bridge finds wrong later has its place in the new text.
	var wrong Errors
	if err := next.Errorf("routes[1].signal", "is wrong"); !errors.As(err, &wrong) || wrong[0].Line != 4 {
		t.Error(err)
	}
}

func TestReloadOfAnythingElse(t *testing.T) {
	t.Parallel()
	for section, text := range map[string]string{
		"project":          "project: other\n",
		"database":         "database: {max_conns: 3}\n",
		"nats":             "nats: {subject_prefix: other}\n",
		"http":             "http: {max_body: 2MiB}\n",
		"outcomes":         "outcomes: {publish: [done]}\n",
		"machines":         "machines: [{name: m, start: s}]\n",
		"flows":            "flows: [{name: f, steps: [{ref: a, type: sleep, sleep_duration: 1s}]}]\n",
		"worker":           "worker: {queues: {other: 1}}\n",
		"retention":        "retention: {dedup: 1h}\n",
		"quotas":           "quotas: {max_active_triggers: 1}\n",
		"webhooks":         "webhooks: {secret: s}\n",
		"migrate_on_start": "migrate_on_start: true\n",
	} {
		next, later, err := reloaded(t, sourceRoute, text+sourceRoute)
		if err != nil || !reflect.DeepEqual(later, []string{section}) {
			t.Errorf("%s: got %v, %v", section, later, err)
			continue
		}
		if next.Routes[0].Project != "default" || next.Database.MaxConns != 16 {
			t.Errorf("%s: took effect: %+v", section, next)
		}
	}
	for _, same := range []string{"# a comment\n" + sourceRoute, sourceRoute + "project: default\n"} {
		if _, later, err := reloaded(t, sourceRoute, same); err != nil || later != nil {
			t.Errorf("%q: %v, %v", same, later, err)
		}
	}
	flow := "flows: [{name: f, steps: [{ref: a, type: sleep, sleep_duration: 1s}]}]\n"
	if _, later, err := reloaded(t, sourceRoute+flow, "# moved\n"+sourceRoute+flow); err != nil || later != nil {
		t.Errorf("a flow that has moved: %v, %v", later, err)
	}
}

func TestReloadOfABadFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " \n", "routes: 7\n", sourceRoute + "surplus: 1\n"} {
		_, _, err := reloaded(t, sourceRoute, text)
		var wrong Errors
		if !errors.As(err, &wrong) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
