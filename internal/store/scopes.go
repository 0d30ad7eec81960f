package store

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// InScopes runs fn in a transaction that holds the locks of these ledger scopes; Nil scopes need none.
func (s *Store) InScopes(ctx context.Context, scopes []uuid.UUID, fn func(tx *Store) error) error {
	return s.inTx(ctx, func(tx *Store) error {
		scopes = slices.DeleteFunc(slices.Clone(scopes), func(u uuid.UUID) bool { return u == uuid.Nil })
		if len(scopes) > 0 {
			if err := tx.LockScopes(ctx, scopes); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// Blamed says whether an error is the fault of a row that was sent.
type Blamed int

// Whose fault an error is.
const (
	BlameNobody Blamed = iota // the connection, the server, the code
	BlameData                 // a row that can never be stored
	BlameLock                 // a row that somebody else has locked, for now
)

// Blame judges an error by its SQLSTATE.
func Blame(err error) Blamed {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return BlameNobody
	}
	switch pg.Code {
	case "55P03", "40P01", "40001": // lock_not_available, deadlock_detected, serialization_failure
		return BlameLock
	}
	switch pg.Code[:2] {
	case "22", "23", "54": // data exception, integrity constraint, program limit
		return BlameData
	}
	return BlameNobody
}
