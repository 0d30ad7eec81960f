package config

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"

	"github.com/goccy/go-yaml/ast"
)

// Bounds of a duration: what is shorter is a mistake in the unit, what is longer is forever.
const (
	shortest = time.Millisecond
	longest  = 10 * 365 * 24 * time.Hour
)

// Parse reads a configuration; name is the file's, for the messages. What is wrong is an [Errors].
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	c := Default()
	c.file, c.where = name, map[string]position{}
	r := &reader{file: name, env: env, anchors: map[string]ast.Node{}, where: c.where}
	if root := r.parse(data); root != nil {
		r.anchor(root)
		c.read(r.object(root, ""))
	}
	if err := r.errs.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) read(o *object) {
	o.token("project", &c.Project)
	c.Database.read(o.child("database"))
	c.NATS.read(o.child("nats"))
	c.HTTP.read(o.child("http"))
	c.readRoutes(o)
	o.flag("signals_route", &c.SignalsRoute)
	c.Outcomes.read(o.child("outcomes"))
	c.readMachines(o)
	c.readFlows(o)
	c.Worker.read(o.child("worker"))
	c.Retention.read(o.child("retention"))
	quotas := o.child("quotas")
	quotas.integer("max_active_triggers", &c.Quotas.MaxActiveTriggers, 0, math.MaxInt32)
	quotas.close()
	c.Webhooks.read(o.child("webhooks"))
	o.flag("migrate_on_start", &c.MigrateOnStart)
	o.close()
}

func (d *Database) read(o *object) {
	o.checked("url", &d.URL, checkDatabaseURL)
	o.integer("max_conns", &d.MaxConns, 1, 10_000)
	o.checked("schema", &d.Schema, checkSchema)
	o.choice("pooler", &d.Pooler, PoolerNone, PoolerTransaction)
	o.close()
}

func (n *NATS) read(o *object) {
	o.checked("url", &n.URL, checkNATSURL)
	o.text("creds", &n.Creds)
	o.text("nkey", &n.NKey)
	o.text("user", &n.User)
	o.text("password", &n.Password)
	o.text("token", &n.Token)
	o.checked("domain", &n.Domain, checkDomain)
	tls := o.child("tls")
	tls.text("ca", &n.TLS.CA)
	tls.text("cert", &n.TLS.Cert)
	tls.text("key", &n.TLS.Key)
	tls.close()
	o.checked("subject_prefix", &n.SubjectPrefix, func(prefix string) string {
		if _, err := subjects.New(prefix); err != nil {
			return err.Error()
		}
		return ""
	})
	o.flag("manage_streams", &n.ManageStreams)
	o.integer("replicas", &n.Replicas, 1, 5)
	o.close()
	n.checkAuth(o, tls)
}

func (n *NATS) checkAuth(o, tls *object) {
	ways := []string{}
	for _, way := range []struct{ name, value string }{{"creds", n.Creds}, {"nkey", n.NKey}, {"user", n.User}, {"token", n.Token}} {
		if way.value != "" {
			ways = append(ways, way.name)
		}
	}
	if len(ways) > 1 {
		o.fail(ways[1], "is a second way to authenticate beside %s: keep one of creds, nkey, user with password, and token", ways[0])
	}
	switch {
	case n.User == "" && n.Password != "":
		o.fail("password", "is set without user: set both or none")
	case n.User != "" && n.Password == "":
		o.fail("user", "is set without password: set both or none")
	}
	switch {
	case n.TLS.Cert == "" && n.TLS.Key != "":
		tls.fail("key", "is set without cert: set both or none")
	case n.TLS.Cert != "" && n.TLS.Key == "":
		tls.fail("cert", "is set without key: set both or none")
	}
}

func (h *HTTP) read(o *object) {
	o.checked("addr", &h.Addr, checkAddr)
	o.size("max_body", &h.MaxBody, 1<<10, 64<<20)
	o.duration("shutdown_timeout", &h.ShutdownTimeout, shortest, longest)
	o.text("admin_token", &h.AdminToken)
	o.close()
}

func (p *Outcomes) read(o *object) {
	all := []string{"done", "failed", "canceled"}
	if o.has("publish") {
		p.Publish = []string{}
	}
	for _, i := range o.list("publish") {
		status, ok := o.r.text(i.node, i.path, "a status")
		switch {
		case !ok:
		case !slices.Contains(all, status):
			o.r.fail(i.node, i.path, "is %q, want one of done, failed, canceled", status)
		case !slices.Contains(p.Publish, status):
			p.Publish = append(p.Publish, status)
		}
	}
	o.close()
}

func (c *Config) readMachines(o *object) {
	type version struct {
		name   string
		number int
	}
	seen := map[version]bool{}
	for _, i := range o.list("machines") {
		m := Machine{
			Version: 1,
			Remote:  Remote{Timeout: 30 * time.Second},
			Queue:   "default",
			Retry:   Retry{MaxAttempts: 5, Initial: time.Second, Max: 5 * time.Minute, Factor: 2},
		}
		mo := o.r.object(i.node, i.path)
		if mo.wrong {
			continue
		}
		m.read(mo)
		v := version{m.Name, m.Version}
		if m.Name != "" && seen[v] {
			mo.fail("name", "there is a machine %s with version %d already: give this one another version", m.Name, m.Version)
		}
		seen[v] = true
		c.Machines = append(c.Machines, m)
	}
}

func (m *Machine) read(o *object) {
	o.token("name", &m.Name)
	o.require("name", "the machine's name")
	o.integer("version", &m.Version, 1, math.MaxInt32)
	o.name("start", &m.Start)
	o.require("start", "the name of the first step")
	remote := o.child("remote")
	remote.duration("timeout", &m.Remote.Timeout, shortest, longest)
	remote.close()
	o.queue("queue", &m.Queue)
	m.Retry.read(o.child("retry"))
	m.Updates = readUpdates(o)
	o.close()
}

func (p *Retry) read(o *object) {
	o.integer("max_attempts", &p.MaxAttempts, 1, math.MaxInt32)
	o.duration("initial", &p.Initial, 0, longest)
	o.duration("max", &p.Max, 0, longest)
	o.decimal("factor", &p.Factor, 1, 1000)
	o.close()
	if p.Max < p.Initial {
		o.fail("max", "is %s, want at least initial, %s", formatDuration(p.Max), formatDuration(p.Initial))
	}
}

func (w *Worker) read(o *object) {
	o.checked("http_addr", &w.HTTPAddr, checkAddr)
	if o.has("queues") {
		w.Queues = map[string]int{}
	}
	queues := o.child("queues")
	queues.describesOthers(description{Type: []string{"integer", "string"}})
	for _, name := range queues.order {
		if reason := reasonOf(ident.Queue("", name)); reason != "" {
			o.r.fail(queues.fields[name].key, queues.sub(name), "%s", reason)
		}
		if !queues.has(name) {
			queues.fail(name, "is empty: want how many steps run at once")
		}
		n := 0
		queues.integer(name, &n, 1, 100_000)
		w.Queues[name] = n
	}
	if o.has("queues") && len(queues.order) == 0 && !queues.wrong {
		o.fail("queues", "has no queue: want at least one, as {default: 64}")
	}
	o.duration("lease", &w.Lease, time.Second, 24*time.Hour)
	o.duration("heartbeat", &w.Heartbeat, 100*time.Millisecond, 24*time.Hour)
	o.duration("reap_interval", &w.ReapInterval, 10*time.Millisecond, time.Hour)
	o.duration("poll_interval", &w.PollInterval, 10*time.Millisecond, time.Hour)
	o.duration("shutdown_timeout", &w.ShutdownTimeout, shortest, longest)
	o.close()
	if w.Heartbeat > w.Lease/2 {
		at := "heartbeat"
		if !o.has(at) {
			at = "lease"
		}
		o.fail(at, "a heartbeat every %s lets a lease of %s run out when one is late: want at most half of it", formatDuration(w.Heartbeat), formatDuration(w.Lease))
	}
}

func (t *Retention) read(o *object) {
	o.duration("instances", &t.Instances, shortest, longest)
	o.duration("triggers", &t.Triggers, 0, longest)
	o.duration("dedup", &t.Dedup, shortest, longest)
	o.duration("webhooks", &t.Webhooks, shortest, longest)
	o.duration("jobs", &t.Jobs, shortest, longest)
	o.close()
}

func (w *Webhooks) read(o *object) {
	for _, i := range o.oneOrMore("secret") {
		if text, ok := o.r.text(i.node, i.path, "a secret"); ok { // several in one value too, as from a variable of the environment
			w.Secrets = append(w.Secrets, strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })...)
		}
	}
	o.flag("allow_private", &w.AllowPrivate)
	o.duration("timeout", &w.Timeout, shortest, time.Hour)
	o.close()
}
