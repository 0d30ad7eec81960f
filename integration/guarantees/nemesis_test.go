package guarantees

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pointsman/pointsman/integration/cluster"
	"github.com/pointsman/pointsman/integration/stories"
)

// weapon is a kind of fault.
type weapon struct {
	kind        string
	least, most time.Duration // that it lasts
	strike      func(ctx context.Context, a *arena, pick int) (heal func(context.Context) error, err error)
}

// strike is one fault of a schedule.
type strike struct {
	weapon
	pick  int           // which member
	lasts time.Duration // from when it is in force until it is healed
	alone bool          // the next comes when all has recovered; else after
	pause time.Duration
}

func (s strike) String() string {
	return fmt.Sprintf("%s %d for %s", s.kind, s.pick, s.lasts.Round(time.Millisecond))
}

// lease of the workers of stories: a pause is longer now and then.
const longerThanALease = 4 * time.Second

// weapons for a cluster of this make.
func weapons(cfg cluster.Config) []weapon {
	const short, long = 100 * time.Millisecond, 3 * time.Second
	from := func(members func(a *arena) []*cluster.Member, do func(ctx context.Context, a *arena, m *cluster.Member) (*cluster.Fault, error)) func(context.Context, *arena, int) (func(context.Context) error, error) {
		return func(ctx context.Context, a *arena, pick int) (func(context.Context) error, error) {
			all := members(a)
			f, err := do(ctx, a, all[pick%len(all)])
			if err != nil {
				return nil, err
			}
			return f.Heal, nil
		}
	}
	bridges := func(a *arena) []*cluster.Member { return a.Bridges() }
	workers := func(a *arena) []*cluster.Member { return a.Workers() }
	servers := func(a *arena) []*cluster.Member { return a.NATS() }
	primary := func(a *arena) []*cluster.Member { return []*cluster.Member{a.Primary()} }
	kill := func(ctx context.Context, a *arena, m *cluster.Member) (*cluster.Fault, error) { return a.Kill(ctx, m) }
	pause := func(ctx context.Context, a *arena, m *cluster.Member) (*cluster.Fault, error) {
		return a.Cluster.Pause(ctx, m)
	}
	isolate := func(ctx context.Context, a *arena, m *cluster.Member) (*cluster.Fault, error) {
		return a.Isolate(ctx, m)
	}
	database := func(do func(a *arena) func(context.Context, *cluster.Member, ...*cluster.Member) (*cluster.Fault, error)) func(context.Context, *arena, *cluster.Member) (*cluster.Fault, error) {
		return func(ctx context.Context, a *arena, m *cluster.Member) (*cluster.Fault, error) {
			return do(a)(ctx, m, a.Database()...)
		}
	}
	nats := func(do func(a *arena) func(context.Context, *cluster.Member, ...*cluster.Member) (*cluster.Fault, error)) func(context.Context, *arena, *cluster.Member) (*cluster.Fault, error) {
		return func(ctx context.Context, a *arena, m *cluster.Member) (*cluster.Fault, error) {
			return do(a)(ctx, m, a.NATS()...)
		}
	}
	type linkFault = func(context.Context, *cluster.Member, ...*cluster.Member) (*cluster.Fault, error)
	cut := func(a *arena) linkFault { return a.Cut }
	refuse := func(a *arena) linkFault { return a.Refuse }
	slow := func(a *arena) linkFault {
		return func(ctx context.Context, m *cluster.Member, to ...*cluster.Member) (*cluster.Fault, error) {
			return a.Slow(ctx, 30*time.Millisecond, m, to...)
		}
	}
	restart := func(members func(a *arena) []*cluster.Member) func(context.Context, *arena, int) (func(context.Context) error, error) {
		return func(ctx context.Context, a *arena, pick int) (func(context.Context) error, error) {
			all := members(a)
			m := all[pick%len(all)]
			return func(ctx context.Context) error { return a.StartAgain(ctx, m) }, a.Terminate(ctx, m)
		}
	}
	all := []weapon{
		{"kill -9 of a bridge", 0, long, from(bridges, kill)},
		{"kill -9 of a worker", 0, long, from(workers, kill)},
		{"kill -9 of Postgres", 0, short, from(primary, kill)},
		{"kill -9 of a NATS server", 0, long, from(servers, kill)},
		{"SIGTERM to a bridge", 0, short, restart(bridges)},
		{"SIGTERM to a worker", 0, short, restart(workers)},
		{"restart of Postgres", 0, short, restart(primary)},
		{"pause of a bridge", short, 2 * longerThanALease, from(bridges, pause)},
		{"pause of a worker", short, 2 * longerThanALease, from(workers, pause)},
		{"pause of Postgres", short, long, from(primary, pause)},
		{"pause of a NATS server", short, long, from(servers, pause)},
		{"cut, bridge from Postgres", short, 2 * longerThanALease, from(bridges, database(cut))},
		{"cut, worker from Postgres", short, 2 * longerThanALease, from(workers, database(cut))},
		{"cut, bridge from NATS", short, long, from(bridges, nats(cut))},
		{"refused, bridge by Postgres", short, long, from(bridges, database(refuse))},
		{"refused, worker by Postgres", short, long, from(workers, database(refuse))},
		{"refused, worker by NATS", short, long, from(workers, nats(refuse))},
		{"slow link, bridge to Postgres", short, long, from(bridges, database(slow))},
		{"slow link, worker to Postgres", short, long, from(workers, database(slow))},
		{"slow link, bridge to NATS", short, long, from(bridges, nats(slow))},
		{"isolation of a bridge", short, long, from(bridges, isolate)},
		{"isolation of a worker", short, 2 * longerThanALease, from(workers, isolate)},
		{"full stream of outcomes", short, long, func(ctx context.Context, a *arena, _ int) (func(context.Context) error, error) {
			f, err := a.Fill(ctx, "POINTSMAN_OUTCOMES")
			if err != nil {
				return nil, err
			}
			return f.Heal, nil
		}},
	}
	if cfg.NATS >= 3 {
		all = append(all, weapon{"cut, NATS leader from its peers", short, long, func(ctx context.Context, a *arena, _ int) (func(context.Context) error, error) {
			leader, err := a.Leader(ctx, stories.Stream)
			if err != nil {
				return nil, err
			}
			f, err := a.Cut(ctx, leader, a.NATS()...)
			if err != nil {
				return nil, err
			}
			return f.Heal, nil
		}})
	}
	if cfg.Standby {
		all = append(all, weapon{"failover of Postgres", 0, short, func(ctx context.Context, a *arena, _ int) (func(context.Context) error, error) {
			f, err := a.Failover(ctx)
			if err != nil {
				return nil, err
			}
			return f.Heal, nil
		}})
	}
	return all
}

// schedule is what a nemesis does, the same whenever seed and weapons are.
type schedule struct {
	rng     *rand.Rand
	weapons []weapon
	deck    []int
}

func newSchedule(seed uint64, ws []weapon) *schedule {
	return &schedule{rng: rand.New(rand.NewPCG(seed, 0)), weapons: ws}
}

// next strike. Each weapon has its turn before one has its second.
func (s *schedule) next() strike {
	if len(s.deck) == 0 {
		s.deck = s.rng.Perm(len(s.weapons))
	}
	w := s.weapons[s.deck[0]]
	s.deck = s.deck[1:]
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(s.rng.Int64N(int64(most-least)+1))
	}
	return strike{weapon: w, pick: s.rng.IntN(12), lasts: between(w.least, w.most), alone: s.rng.IntN(2) == 0, pause: between(0, time.Second)}
}

// nemesis strikes, and measures how long everything takes to recover.
type nemesis struct {
	*arena
	report *report

	mu     sync.Mutex
	probes []probed
}

type probed struct {
	at    time.Time // before it was published
	event string
}

// probe publishes a probe every so often, until ctx ends.
func (n *nemesis) probe(ctx context.Context) {
	for ctx.Err() == nil {
		at := time.Now()
		event, err := n.workload.Probe(ctx)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.probes = append(n.probes, probed{at, event})
		n.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// caughtUp reports whether all probes from before have come through.
func (n *nemesis) caughtUp(before time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.probes) > 0 && n.account.Happened(n.probes[0].event) {
		n.probes = n.probes[1:]
	}
	for _, p := range n.probes {
		if p.at.Before(before) && !n.account.Happened(p.event) {
			return false
		}
	}
	return true
}

// strike once.
func (n *nemesis) strike(ctx context.Context, s strike) error {
	n.Logf("%s", s)
	heal, err := s.strike(ctx, n.arena, s.pick)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	select {
	case <-time.After(s.lasts):
	case <-ctx.Done():
	}
	if err := heal(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	n.report.struck(s.kind)
	if !s.alone {
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
		}
		return nil
	}
	healed := time.Now()
	for !n.caughtUp(healed) {
		news := n.account.News()
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(healed.Add(patience))):
			return fmt.Errorf("%s: what was published before it was healed has not come through %s later", s, patience)
		}
	}
	n.report.recovered(s.kind, time.Since(healed))
	return nil
}

// rampage strikes while more says so, on a workload of all stories, and judges in the end.
func (a *arena) rampage(cfg cluster.Config, seed uint64, more func(struck int) bool) *report {
	a.Helper()
	n := &nemesis{arena: a, report: newReport(seed, a.Backend())}
	s := newSchedule(seed, weapons(cfg))
	end := a.begin()
	probing, stop := context.WithCancel(a.ctx)
	var probes sync.WaitGroup
	probes.Go(func() { n.probe(probing) })
	for struck := 0; more(struck) && !a.Failed(); struck++ {
		if err := n.strike(a.ctx, s.next()); err != nil {
			a.Error(err)
		}
	}
	stop()
	probes.Wait()
	end()
	vs := a.found()
	a.wrong(vs)
	n.report.end(a.account.Count(), a.workload.Played(), vs)
	return n.report
}
