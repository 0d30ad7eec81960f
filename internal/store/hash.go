package store

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// hash is the first 128 bits of the SHA-256 of the parts, a zero byte between them (keys and names hold none). The SQL functions
// compute the same.
func hash[T string | []byte](parts ...T) uuid.UUID {
	var most [256]byte // nearly all that is hashed fits, and is not allocated
	joined := most[:0]
	for i, p := range parts {
		if i > 0 {
			joined = append(joined, 0)
		}
		joined = append(joined, p...)
	}
	sum := sha256.Sum256(joined)
	return uuid.UUID(sum[:16])
}

// KeyScope is the ledger scope of whoever holds, held or will hold this key.
func KeyScope(project, key string) uuid.UUID { return hash(project, key) }

// SignalDedup is the ledger's form of a signal's dedup key.
func SignalDedup(key string) uuid.UUID { return hash(key) }

// StartDedup is the ledger's form of a start's dedup key: a start and a signal made from one message do not collide.
func StartDedup(key string) uuid.UUID { return hash("start", key) }

// UpdateDedup is the ledger's form of an update's idempotency key: it does not collide with that of a signal, or of another update.
func UpdateDedup(name, key string) uuid.UUID {
	return hash("update", name, key)
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
