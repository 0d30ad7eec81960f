// Package auth says who sends a request and what they may do: by an API key, which belongs to one project, or by the admin token, which
// belongs to none.
package auth

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/internal/ident"
)

// Scope is what a caller may do. Each holds those before it.
type Scope int

// Scopes.
const (
	Read  Scope = iota + 1 // see
	Send                   // start, signal, update, send events
	Admin                  // what operators do: cancel, retry, pause, resume, purge
)

var scopes = map[Scope]string{Read: "read", Send: "send", Admin: "admin"}

func (s Scope) String() string { return scopes[s] }

// ParseScope reads the name of a scope.
func ParseScope(name string) (Scope, error) {
	for s, n := range scopes {
		if n == name {
			return s, nil
		}
	}
	return 0, &ident.Error{Field: "scope", Reason: fmt.Sprintf("%.40q is none of read, send, admin", name)}
}

// Principal is who sends a request.
type Principal struct {
	Name    string // of the key, or AdminName; "": nobody knows, as the API is open
	Project string // the only one that they may see; "": any, and what belongs to none
	Scope   Scope
}

// AdminName is what is kept of who used the admin token. No key has this name.
const AdminName = "admin"

// Bound says whether the principal may only see one project.
func (p Principal) Bound() bool { return p.Project != "" }

type principalKey struct{}

// With returns a context of a request of this principal.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Caller is the name of who sent the request of this context, "" where that is not known.
func Caller(ctx context.Context) string {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p.Name
}
