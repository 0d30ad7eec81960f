package store

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// hash is the first 128 bits of the SHA-256 of the parts, a zero byte between them (keys and names hold none). The SQL functions
// compute the same.
func hash(parts ...[]byte) uuid.UUID {
	h := sha256.New()
	for i, p := range parts {
		if i > 0 {
			h.Write([]byte{0})
		}
		h.Write(p)
	}
	var sum [sha256.Size]byte
	return uuid.UUID(h.Sum(sum[:0])[:16])
}

// KeyScope is the ledger scope of whoever holds, held or will hold this key.
func KeyScope(project, key string) uuid.UUID { return hash([]byte(project), []byte(key)) }

// SignalDedup is the ledger's form of a signal's dedup key.
func SignalDedup(key string) uuid.UUID { return hash([]byte(key)) }

// StartDedup is the ledger's form of a start's dedup key: a start and a signal made from one message do not collide.
func StartDedup(key string) uuid.UUID { return hash([]byte("start"), []byte(key)) }

// UpdateDedup is the ledger's form of an update's idempotency key: it does not collide with that of a signal, or of another update.
func UpdateDedup(name, key string) uuid.UUID {
	return hash([]byte("update"), []byte(name), []byte(key))
}

// SignalHash tells a conflict from a duplicate.
func SignalHash(kind, name string, body []byte) uuid.UUID {
	return hash([]byte(kind), []byte(name), body)
}

// Source is the ledger's form of a place in a stream, as one route reads it.
func Source(route, stream string, created time.Time, seq uint64) uuid.UUID {
	at := binary.BigEndian.AppendUint64(nil, uint64(created.UnixNano()))
	return hash([]byte(route), []byte(stream), binary.BigEndian.AppendUint64(at, seq))
}

// lockOf is the advisory lock of a scope.
func lockOf(scope uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(scope[:8])) }
