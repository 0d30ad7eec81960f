package app

import (
	"maps"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/subjects"
)

// Rights are the NATS subjects that a program may publish to, and subscribe to.
type Rights struct {
	Program   string   `json:"program"`
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
}

const inboxes = "_INBOX.>"

// Permissions are the rights that bridge, worker and command line need for a configuration, and no others. What the configuration cannot
// say is for extra: subjects that steps publish to, and replies to that starts ask for.
func Permissions(cfg *config.Config, extra []string) ([]Rights, error) {
	space, err := subjects.New(cfg.NATS.SubjectPrefix)
	if err != nil {
		return nil, err
	}
	routes, err := bridgeRoutes(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.SignalsRoute {
		routes = append(routes, bridge.Route{Name: subjects.SignalsRoute, Stream: space.SignalsStream(), Subjects: []string{space.SignalFilter()}})
	}
	all := []Rights{bridgeRights(cfg, space, routes, extra), workerRights(cfg, space), commandRights(space, routes)}
	if cfg.NATS.Domain != "" {
		for _, r := range all {
			for i, subject := range r.Publish {
				if call, ok := strings.CutPrefix(subject, "$JS.API."); ok {
					r.Publish[i] = "$JS." + cfg.NATS.Domain + ".API." + call
				}
			}
		}
	}
	return all, nil
}

func bridgeRights(cfg *config.Config, space subjects.Space, routes []bridge.Route, extra []string) Rights {
	publish := []string{
		space.OutcomeFilter(), space.DeadLetter("*"), space.Wake("*"), space.Notice("*"),
		inboxes,                // answers to requests
		"$JS.API.STREAM.NAMES", // which stream should have taken a publication
		space.Validate("*", ">"),
	}
	for _, rt := range routes {
		if rt.Existing != "" {
			publish = append(publish, "$JS.API.CONSUMER.MSG.NEXT."+rt.Stream+"."+rt.Existing, "$JS.ACK."+rt.Stream+"."+rt.Existing+".>")
			continue
		}
		publish = append(publish, reading(rt.Stream)...)
		publish = append(publish, "$JS.ACK."+rt.Stream+"."+space.Durable(rt.Name)+".>")
		if rt.Start != nil && rt.Start.ReplyTo != "" && !strings.Contains(rt.Start.ReplyTo, "{{") {
			publish = append(publish, rt.Start.ReplyTo)
		}
	}
	for _, f := range cfg.Flows {
		publish = append(publish, f.Subjects(dag.Publish)...)
	}
	publish = append(publish, reading(space.DeadLettersStream())...)
	publish = append(publish, "$JS.API.STREAM.MSG.DELETE."+space.DeadLettersStream()) // replayed, or dropped
	if cfg.NATS.ManageStreams {
		for _, stream := range []string{space.SignalsStream(), space.OutcomesStream(), space.DeadLettersStream()} {
			publish = append(publish, "$JS.API.STREAM.INFO."+stream, "$JS.API.STREAM.CREATE."+stream)
		}
	}
	return Rights{"bridge", unique(publish, extra), unique([]string{inboxes, space.API("*"), "$SRV.>", space.Wake(engine.OutboxQueue), space.Wake(engine.WebhooksQueue), space.Wake(engine.JobsQueue), space.Notice("*")})}
}

// reading a stream, by consumers that are made for it, and message by message.
func reading(stream string) []string {
	return append([]string{
		"$JS.API.STREAM.INFO." + stream, "$JS.API.STREAM.MSG.GET." + stream, "$JS.API.DIRECT.GET." + stream, "$JS.API.DIRECT.GET." + stream + ".>",
		"$JS.API.CONSUMER.DELETE." + stream + ".*",
	}, consuming(stream)...)
}

// consuming a stream, by consumers that are made for it under names of their own, and go by themselves.
func consuming(stream string) []string {
	return []string{"$JS.API.CONSUMER.CREATE." + stream + ".>", "$JS.API.CONSUMER.INFO." + stream + ".*", "$JS.API.CONSUMER.MSG.NEXT." + stream + ".*"}
}

func workerRights(cfg *config.Config, space subjects.Space) Rights {
	publish, subscribe := []string{space.Wake("*"), space.Notice("*")}, []string{inboxes}
	for _, m := range cfg.Machines {
		publish = append(publish, space.Step(m.Name, ">"))
	}
	for _, f := range cfg.Flows {
		publish = append(publish, f.Subjects(dag.Call)...)
	}
	for _, queue := range slices.Sorted(maps.Keys(cfg.Worker.Queues)) {
		subscribe = append(subscribe, space.Wake(queue))
	}
	return Rights{"worker", unique(publish), unique(subscribe)}
}

// commandRights are for requests, publish, the plans of routes, and audits, which read the streams of routes and the dead letters.
func commandRights(space subjects.Space, routes []bridge.Route) Rights {
	publish := []string{space.API("*"), "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.NAMES.*"}
	for _, rt := range routes {
		publish = append(publish, rt.Subjects...)
		publish = append(publish, consuming(rt.Stream)...)
		if rt.Existing == "" {
			publish = append(publish, "$JS.API.CONSUMER.DELETE."+rt.Stream+"."+space.Durable(rt.Name))
		}
	}
	publish = append(publish, consuming(space.DeadLettersStream())...)
	return Rights{"cli", unique(publish), []string{inboxes}}
}

// unique subjects, in their order.
func unique(lists ...[]string) (all []string) {
	seen := map[string]bool{}
	for _, subject := range slices.Concat(lists...) {
		if !seen[subject] {
			seen[subject] = true
			all = append(all, subject)
		}
	}
	return all
}

// Conf is the permissions of a user in the configuration of nats-server.
func (r Rights) Conf() string {
	list := func(all []string) string { return "[\n    \"" + strings.Join(all, "\"\n    \"") + "\"\n  ]" }
	return "permissions: {\n  publish: " + list(r.Publish) + "\n  subscribe: " + list(r.Subscribe) + "\n}\n"
}

// NSC is the command that adds such a user.
func (r Rights) NSC() string {
	return "nsc add user pointsman-" + r.Program + " --allow-pub '" + strings.Join(r.Publish, ",") + "' --allow-sub '" + strings.Join(r.Subscribe, ",") + "'\n"
}
