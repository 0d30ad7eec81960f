package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// ErrUnauthorized: the request has no token where one is needed, or one that is not known.
var ErrUnauthorized = errors.New("unauthorized")

const (
	// remembered is how long what the database said of a key holds: a revoked key may go on for so long, and the first key that is made
	// takes so long to close an open API.
	remembered = time.Second
	maxKnown   = 10_000 // answers that are remembered
	// lookupTimeout bounds a look, which is for all that ask for the same meanwhile.
	lookupTimeout = 5 * time.Second
)

// GuardConfig of a [Guard].
type GuardConfig struct {
	AdminToken string // "": there is none
	Keys       *Keys
	// Open lets everybody in while there is neither an admin token nor an API key: for an API that only this machine reaches.
	Open bool
}

// Guard finds out who sends a request. It is safe for concurrent use.
type Guard struct {
	cfg   GuardConfig
	admin [sha256.Size]byte
	looks singleflight.Group

	mu    sync.Mutex
	known map[[sha256.Size]byte]answer // by the hash of the token
	keys  answer                       // whether there are any
}

// answer of the database.
type answer struct {
	principal Principal
	yes       bool
	until     time.Time
}

// NewGuard returns a guard.
func NewGuard(cfg GuardConfig) *Guard {
	return &Guard{cfg: cfg, admin: sha256.Sum256([]byte(cfg.AdminToken)), known: map[[sha256.Size]byte]answer{}}
}

// Authenticate says whose token this is; "" is none. The error is [ErrUnauthorized], or that the database cannot be asked.
func (g *Guard) Authenticate(ctx context.Context, token string) (Principal, error) {
	if token == "" {
		secured, err := g.Secured(ctx)
		if err != nil {
			return Principal{}, err
		}
		if secured || !g.cfg.Open {
			return Principal{}, ErrUnauthorized
		}
		return Principal{Scope: Admin}, nil
	}
	sum := sha256.Sum256([]byte(token))
	if g.cfg.AdminToken != "" && subtle.ConstantTimeCompare(sum[:], g.admin[:]) == 1 {
		return Principal{Name: AdminName, Scope: Admin}, nil
	}
	if !strings.HasPrefix(token, prefix) {
		return Principal{}, ErrUnauthorized
	}
	a, err := g.ask(ctx, string(sum[:]), func() (answer, bool) { a, ok := g.known[sum]; return a, ok }, func(ctx context.Context) (a answer, err error) {
		a.principal, a.yes, err = g.cfg.Keys.lookup(ctx, sum[:])
		return a, err
	}, func(a answer) {
		if len(g.known) >= maxKnown {
			clear(g.known)
		}
		g.known[sum] = a
	})
	if err != nil {
		return Principal{}, err
	}
	if !a.yes {
		return Principal{}, ErrUnauthorized
	}
	return a.principal, nil
}

// Secured says whether requests need a token: there is an admin token, or a key.
func (g *Guard) Secured(ctx context.Context) (bool, error) {
	if g.cfg.AdminToken != "" {
		return true, nil
	}
	a, err := g.ask(ctx, "any", func() (answer, bool) { return g.keys, true }, func(ctx context.Context) (a answer, err error) {
		a.yes, err = g.cfg.Keys.Any(ctx)
		return a, err
	}, func(a answer) { g.keys = a })
	return a.yes, err
}

// ask returns what is remembered, or else looks; who asks for the same meanwhile waits for the same look.
func (g *Guard) ask(ctx context.Context, what string, recall func() (answer, bool), look func(context.Context) (answer, error), remember func(answer)) (answer, error) {
	g.mu.Lock()
	a, ok := recall()
	g.mu.Unlock()
	if ok && time.Now().Before(a.until) {
		return a, nil
	}
	result := g.looks.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		until := time.Now().Add(remembered) // from before the look: what it sees is not younger
		a, err := look(ctx)
		if err != nil {
			return answer{}, err
		}
		a.until = until
		g.mu.Lock()
		defer g.mu.Unlock()
		remember(a)
		return a, nil
	})
	select {
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return answer{}, r.Err
		}
		return r.Val.(answer), nil
	}
}
