package bridge

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// Reloaded is what a [Bridge.Reload] did, by the names of routes.
type Reloaded struct{ Added, Changed, Removed []string }

// Reload replaces the routes, also while [Bridge.Run] carries messages. A route that is the same as before goes on untouched. One that is
// gone is stopped: what it has in hand is settled, and its consumer stays in the stream, where it keeps its place. One that is changed is
// stopped so and started anew. Reload returns when all that were to stop have, which the ShutdownTimeout bounds.
//
// On an error, which is of the new routes, nothing has changed.
func (b *Bridge) Reload(routes []Route, noSignalsRoute bool) (Reloaded, error) {
	cfg := b.cfg
	cfg.Routes, cfg.NoSignalsRoute = routes, noSignalsRoute
	compiled, err := compileRoutes(cfg)
	if err != nil {
		return Reloaded{}, fmt.Errorf("bridge: %w", err)
	}
	b.reloading.Lock()
	defer b.reloading.Unlock()

	change, retired := b.replace(compiled)
	var stopping sync.WaitGroup
	for old, next := range retired {
		stopping.Go(func() { b.succeed(old, next) })
	}
	stopping.Wait()
	return change, nil
}

// replace the routes and start the new ones. Retired are those to stop, each with its successor, or nil.
func (b *Bridge) replace(compiled []*route) (change Reloaded, retired map[*consumer]*consumer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := make(map[string]*consumer, len(b.routes))
	for _, c := range b.routes {
		before[c.route.Name] = c
	}
	b.routes, retired = nil, map[*consumer]*consumer{}
	for _, rt := range compiled {
		old := before[rt.Name]
		delete(before, rt.Name)
		if old != nil && reflect.DeepEqual(old.route.Route, rt.Route) {
			b.routes = append(b.routes, old)
			continue
		}
		next := b.consumer(rt)
		b.routes = append(b.routes, next)
		if old != nil {
			change.Changed = append(change.Changed, rt.Name)
			retired[old] = next
			continue
		}
		change.Added = append(change.Added, rt.Name)
		b.health.expect(partRoute(rt.Name))
		if b.start != nil {
			b.start(next)
		}
	}
	for name, old := range before {
		change.Removed = append(change.Removed, name)
		retired[old] = nil
	}
	slices.Sort(change.Removed)
	return change, retired
}

// succeed stops a route, and starts the one in its place, if any: two of one name would share a consumer, and of an ordered one the hold.
func (b *Bridge) succeed(old, next *consumer) {
	name := old.route.Name
	if old.stop != nil { // else Run has not begun, and will start what is there then
		old.stop()
		<-old.settled
	}
	if next == nil || old.stop != nil {
		b.health.forget(partRoute(name), partInbox(name), partDeadLetters(name))
	}
	if next == nil {
		b.metrics.forget(name)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start != nil && old.stop != nil {
		b.health.expect(partRoute(name))
		b.start(next)
	}
}
