// Package config reads pointsman.yaml.
//
// A file is read strictly: every field is known, every value is of its type and in its range, every template compiles.
// All that is wrong is reported at once, each with its line, column and field, and nothing of the system is asked: no
// network, no database. What comes out holds plain values with all defaults filled in.
//
// ${NAME} and ${NAME:-default} in a value are replaced from the environment, the default also where the variable is
// empty, as in a shell; $${ stands for ${ itself. A variable that is not set and has no default is an error, except
// those that the programs read themselves (POINTSMAN_DATABASE_URL and the others of [Config.ApplyEnv]), which count
// as empty: whether a program needs them is decided when it starts, by [Config.CheckDatabase] and [Config.CheckBind].
package config

import (
	"time"

	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// Config is the whole configuration, valid and complete.
type Config struct {
	Project        string // of routes that name none
	Database       Database
	NATS           NATS
	HTTP           HTTP
	Routes         []Route
	SignalsRoute   bool // the built-in route
	Outcomes       Outcomes
	Machines       []Machine
	Flows          []Flow
	Worker         Worker
	Retention      Retention
	Quotas         Quotas
	Webhooks       Webhooks
	MigrateOnStart bool

	source *Source // nil: it was not loaded from a file
	file   string
	where  map[string]position // of every field that the file sets, by its path
}

// Poolers that may stand between pointsman and Postgres.
const (
	PoolerNone        = "none"
	PoolerTransaction = "transaction"
)

// Database is where the state is kept.
type Database struct {
	URL      string
	MaxConns int
	Schema   string
	Pooler   string
}

// NATS is the connection, and what is made there. At most one of Creds, NKey, User with Password, and Token is set.
type NATS struct {
	URL           string // one, or several separated by commas
	Creds         string // file
	NKey          string // file of the seed
	User          string
	Password      string
	Token         string
	TLS           TLS
	Domain        string // of JetStream; "": the server's own
	SubjectPrefix string
	ManageStreams bool
	Replicas      int // of streams that are made
}

// TLS names PEM files; Cert and Key are set together.
type TLS struct{ CA, Cert, Key string }

// HTTP is the API of the bridge.
type HTTP struct {
	Addr            string
	MaxBody         int // bytes
	ShutdownTimeout time.Duration
	AdminToken      string
}

// Outcomes that are published, of done, failed and canceled.
type Outcomes struct{ Publish []string }

// Machine is answered over NATS by a service.
type Machine struct {
	Name    string
	Version int
	Start   string // first step
	Remote  Remote
	Queue   string // of instances whose start names none
	Retry   Retry
	Updates []Update // that are validated; those of the newest version are for all
}

// Remote is how a service is asked.
type Remote struct{ Timeout time.Duration }

// Retry of a step that returned an error: Initial * Factor^attempt, at most Max.
type Retry struct {
	MaxAttempts int
	Initial     time.Duration
	Max         time.Duration
	Factor      float64
}

// Flow is a machine that is declared in the file.
type Flow struct {
	*dag.Flow
	Updates []Update // that are validated; those of the newest version are for all
}

// Worker runs steps.
type Worker struct {
	HTTPAddr        string         // health and metrics
	Queues          map[string]int // name to steps at once
	Lease           time.Duration
	Heartbeat       time.Duration
	ReapInterval    time.Duration
	PollInterval    time.Duration
	ShutdownTimeout time.Duration
}

// Retention is how long what has ended is kept.
type Retention struct{ Instances, Triggers, Dedup, Webhooks, Jobs time.Duration }

// Quotas of one project; 0 is no limit.
type Quotas struct{ MaxActiveTriggers int }

// Webhooks that are sent.
type Webhooks struct {
	Secrets      []string // each signs; none: nothing is signed
	AllowPrivate bool     // addresses of private networks
	Timeout      time.Duration
}

// Default is the configuration of an empty file.
func Default() *Config {
	return &Config{
		Project:      "default",
		Database:     Database{MaxConns: 16, Schema: "pointsman", Pooler: PoolerNone},
		NATS:         NATS{URL: "nats://127.0.0.1:4222", SubjectPrefix: subjects.DefaultPrefix, ManageStreams: true, Replicas: 1},
		HTTP:         HTTP{Addr: "127.0.0.1:8080", MaxBody: ident.MaxJSON, ShutdownTimeout: 30 * time.Second},
		SignalsRoute: true,
		Outcomes:     Outcomes{Publish: []string{"done", "failed", "canceled"}},
		Worker: Worker{
			HTTPAddr:        "127.0.0.1:8081",
			Queues:          map[string]int{"default": 64},
			Lease:           60 * time.Second,
			Heartbeat:       20 * time.Second,
			ReapInterval:    time.Second,
			PollInterval:    time.Second,
			ShutdownTimeout: 30 * time.Second,
		},
		Retention: Retention{Instances: 168 * time.Hour, Triggers: 720 * time.Hour, Dedup: 168 * time.Hour, Webhooks: 720 * time.Hour, Jobs: 720 * time.Hour},
		Webhooks:  Webhooks{Timeout: 10 * time.Second},
	}
}

// Route is a rule of the bridge.
type Route struct {
	Name     string
	Project  string
	Stream   string
	Subjects []string // filters; none only with Consumer, which has its own

	When            *expr.Condition  // nil: every message
	Signal          *expr.Template   // nil with Event, or with Start alone
	Event           *expr.Template   // the key of the trigger; nil with Signal or Start
	CorrelationKeys []*expr.Template // a signal to each; a template may also give a list
	DedupKey        *expr.Template   // nil: derived from the message
	Payload         *expr.Template   // nil: the whole body
	Format          string

	OnMissing  string
	HoldFor    time.Duration
	OnTerminal string
	Start      *RouteStart

	Ordered    bool
	MaxDeliver int
	MaxBody    int // bytes
	Batch      Batch
	Consumer   string // made by others; "": the route's own
	Paused     bool
}

// RouteStart is the instance that a route starts.
type RouteStart struct {
	Machine string
	Version int // 0: the newest
	State   *expr.Template
	Queue   string         // "": the machine's
	ReplyTo *expr.Template // nil: nobody

	NotifyURL *expr.Template // nil: nobody

	PartitionKey *expr.Template // nil: none
	UniqueKey    *expr.Template // nil: none
	UniqueScope  []string       // statuses; none: the live ones
}

// Batch bounds how many messages are taken together, and how long one is waited for.
type Batch struct {
	Size int
	Wait time.Duration
}

// Formats of a body.
const (
	FormatJSON  = "json"
	FormatText  = "text"
	FormatBytes = "bytes"
)

// What becomes of a message whose instance is not there, or has ended.
const (
	Hold   = "hold"
	Start  = "start"
	Reject = "reject"
	Drop   = "drop"
)
