// Package api is the operations that pointsman answers to, whoever carries the request: each is a method that takes a typed request,
// with the JSON of the contract, and returns what is to be written as JSON, or an error that [ErrorOf] puts into the contract's form.
package api

import (
	"context"
	"errors"
	"time"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
)

// Config of an [API]. All are required but Project.
type Config struct {
	Client   *engine.Client
	Mapper   *bridge.Mapper
	Tracer   *bridge.Tracer
	Letters  *bridge.Letters
	Replayer *bridge.Replayer
	Dropper  *bridge.Dropper
	Operator *bridge.Operator
	Project  string // of requests that name none
}

// API answers requests. It is safe for concurrent use.
type API struct {
	Config
	waiting context.Context // of all that wait
	endAll  context.CancelFunc
}

// New checks the configuration.
func New(cfg Config) (*API, error) {
	if cfg.Client == nil || cfg.Mapper == nil || cfg.Tracer == nil || cfg.Letters == nil || cfg.Replayer == nil || cfg.Dropper == nil || cfg.Operator == nil {
		return nil, errors.New("api: Client, Mapper, Tracer, Letters, Replayer, Dropper and Operator are required")
	}
	if cfg.Project == "" {
		cfg.Project = engine.DefaultProject
	}
	a := &API{Config: cfg}
	a.waiting, a.endAll = context.WithCancel(context.Background())
	return a, nil
}

// EndWaits answers all that wait, now and from now on, as if their time were up: a process that stops need not wait with them.
func (a *API) EndWaits() { a.endAll() }

// ProjectOf is the project that a request names, or the default one.
func (a *API) ProjectOf(name string) (string, error) {
	if name == "" {
		return a.Project, nil
	}
	return name, ident.Token("project", name)
}

// Bounds of requests and answers.
const (
	MaxItems     = 1000 // of an array
	DefaultLimit = 50
	MaxLimit     = 200
	// MaxWait is how long a request may ask to wait.
	MaxWait = 5 * time.Minute
	// pageBytes is about how much one page holds; it is cut short, with a cursor, where its items are large.
	pageBytes = 512 << 10
)
