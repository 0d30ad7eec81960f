// Package stories is a workload for pointsman that can be judged. A [Story] is a kind of process: the machines that live it, the routes that its
// messages take, and one play of it after another, in which a [Player] publishes what such a process meets in the world. What has to come of each
// event goes into the account of package oracle before it is published; what the machines consumed comes back as records.
//
// A new story is one file: a type that implements [Story], and its name in [All].
package stories

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// Story is a kind of process.
type Story interface {
	// Name is the first token of its keys, "<name>-<number>", and the second of its subjects.
	Name() string
	Machines() []*engine.Machine
	// Routes are those of its messages, as a list in YAML.
	Routes() string
	// Play brings about one process, and returns when it has happened, as far as the story waits for that.
	Play(ctx context.Context, p *Player) error
}

// All stories.
func All() []Story {
	return []Story{pack{}, ticks{}, deadline{}, family{}, lanes{}, solo{}, brood{}, expense{}, notice{}, garbage{}, slow{}, probe{}}
}

// Named are the stories with these names.
func Named(names ...string) (some []Story) {
	for _, name := range names {
		for _, s := range All() {
			if s.Name() == name {
				some = append(some, s)
			}
		}
	}
	if len(some) != len(names) {
		panic(fmt.Sprint("stories: not all of these are stories: ", names))
	}
	return some
}

// Machines of all stories.
func Machines() (all []*engine.Machine) {
	for _, s := range All() {
		all = append(all, s.Machines()...)
	}
	return all
}

// Streams of the messages of stories, and of what comes of them.
const (
	Stream        = "STORIES"
	OrderedStream = "TICKS"
	RecordStream  = "RECORDS"
)

// Streams returns the streams to make. The windows in which a server drops duplicates are short, so that most get through to the bridge, and
// what a relay publishes again is seen.
func Streams() []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{Name: Stream, Subjects: []string{"stories.>"}, Duplicates: Window},
		{Name: OrderedStream, Subjects: []string{"ticks.>"}},
		{Name: RecordStream, Subjects: []string{records + ">"}, Duplicates: Window},
		{Name: "POINTSMAN_OUTCOMES", Subjects: []string{"pointsman.outcome.>"}, Duplicates: Window},
	}
}

// Config is a configuration for bridges and workers: the routes of the stories, and leases short enough for a test.
func Config(some ...Story) string {
	var b strings.Builder
	b.WriteString(`worker: {lease: 3s, heartbeat: 1s, reap_interval: 200ms, poll_interval: 500ms}
routes:
`)
	for _, s := range some {
		b.WriteString(s.Routes())
	}
	return b.String()
}

func must(m *engine.Machine, err error) *engine.Machine {
	if err != nil {
		panic(err)
	}
	return m
}
