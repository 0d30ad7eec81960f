package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// How much an await may ask for: names that have to be there together, ends of children, and bytes of one condition. A step is handed no
// more than as many signals.
const (
	MaxAwaited   = store.MaxInbox
	MaxPathBytes = 1024
)

// AllOf makes an await wait for all of its names: it wakes when a signal of each is in the inbox, and at least one of them was not handed
// to this step. Several signals of one name count as one. When its deadline comes first, the step has what is there.
func (o Outcome) AllOf() Outcome { return o.need("AllOf", len(o.names())) }

// NOf makes an await wait for signals of n of its names; see [Outcome.AllOf].
func (o Outcome) NOf(n int) Outcome {
	if n < 1 || n > len(o.names()) {
		o.check(fmt.Errorf("NOf(%d): the await has %d names", n, len(o.names())))
	}
	return o.need("NOf", n)
}

func (o Outcome) need(what string, n int) Outcome {
	switch {
	case o.kind != store.OutcomeAwait || len(o.names()) == 0:
		o.check(fmt.Errorf("%s: wants an await of names", what))
	case n > MaxAwaited:
		o.check(fmt.Errorf("%s: waits for %d names: at most %d; a step is handed no more", what, n, MaxAwaited))
	}
	o.awaitN = n
	return o
}

// names are those of the signals that an await names, each once.
func (o *Outcome) names() []string {
	var names []string
	for _, tag := range o.awaits {
		if name, ok := strings.CutPrefix(tag, KindSignal+"/"); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Where puts a condition on one name of an await: an SQL/JSON path predicate over the payload, as in
//
//	Await("ship", "payment").Where("payment", `$.amount >= 100 && $.currency == "EUR"`)
//
// A signal of that name whose payload does not pass is none for this await: it wakes nobody, is not in Awaited, and stays in the inbox for
// another. What cannot be evaluated (a field that is not there, text compared with a number) does not pass. The path is checked before the
// outcome commits, where a bad one is an error of the step; it has at most [MaxPathBytes].
func (o Outcome) Where(name, path string) Outcome {
	switch {
	case !slices.Contains(o.names(), name):
		o.check(fmt.Errorf("Where(%q): the await does not name it", name))
	case len(path) > MaxPathBytes:
		o.check(fmt.Errorf("Where(%q): the path has %d bytes: at most %d", name, len(path), MaxPathBytes))
	case strings.ContainsRune(path, 0) || path == "":
		o.check(fmt.Errorf("Where(%q): the path is empty, or has a zero byte", name))
	}
	o.where = maps.Clone(o.where)
	if o.where == nil {
		o.where = map[string]string{}
	}
	o.where[name] = path
	return o
}

// conditions as they are stored; nil: none.
func (o *Outcome) conditions() []byte {
	if len(o.where) == 0 {
		return nil
	}
	b, err := json.Marshal(o.where)
	if err != nil {
		return nil // a map of texts
	}
	return b
}

// maxPaths bounds the paths that a worker remembers to be good.
const maxPaths = 1000

// paths are conditions that are known to be good.
type paths struct {
	mu    sync.Mutex
	known map[string]bool
}

func (p *paths) has(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[path]
}

func (p *paths) add(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxPaths {
		p.known = map[string]bool{}
	}
	p.known[path] = true
}

// checkPaths asks Postgres about conditions that this worker has not seen yet; nobody else knows the syntax. An outage is waited for.
func (w *Worker) checkPaths(ctx context.Context, o Outcome) error {
	for _, name := range slices.Sorted(maps.Keys(o.where)) {
		path := o.where[name]
		if w.paths.has(path) {
			continue
		}
		var bad *store.PathError
		err := w.retry(ctx, "check path", func(ctx context.Context) error {
			bad = nil
			err := w.store.CheckPath(ctx, path)
			if errors.As(err, &bad) {
				return nil
			}
			return err
		})
		if bad != nil {
			return fmt.Errorf("outcome %s: the condition for %q: %w", o.kind, name, bad)
		}
		if err != nil {
			return fmt.Errorf("outcome %s: the condition for %q could not be checked: %w", o.kind, name, err)
		}
		w.paths.add(path)
	}
	return nil
}

// Passing are those of the signals, which are in the inbox, that a condition as that of [Outcome.Where] lets through, as Postgres says: a step that
// awaits a name for several reasons learns here which signal is for which. It waits for a database that is away. The error is about the path,
// or ctx's.
func (v *Visit[S]) Passing(ctx context.Context, path string, signals ...Signal) ([]Signal, error) {
	if v.passing == nil {
		return nil, errors.New("passing: this visit is of no worker")
	}
	ids := make([]int64, len(signals))
	for i, s := range signals {
		ids[i] = s.ID
	}
	passed, err := v.passing(ctx, path, ids)
	if err != nil {
		return nil, err
	}
	var through []Signal
	for _, s := range signals {
		if slices.Contains(passed, s.ID) {
			through = append(through, s)
		}
	}
	return through, nil
}

func (w *Worker) passing(ctx context.Context, id uuid.UUID, path string, signals []int64) (passed []int64, err error) {
	var bad *store.PathError
	err = w.retry(ctx, "passing", func(ctx context.Context) error {
		var err error
		if passed, err = w.store.Passing(ctx, id, path, signals); errors.As(err, &bad) {
			return nil
		}
		return err
	})
	if bad != nil {
		return nil, bad
	}
	return passed, err
}
