package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Where the rows of a statement are many, one set of targets takes them all, one row after the other: a pointer to a pointer, as pgx
// has it for what may be null, would be an allocation each.

// text is one that may be null, which is "". Rows of one statement often repeat it: then it is the one of the row before.
type text string

func (t *text) ScanBytes(src []byte) error {
	if string(src) != string(*t) {
		*t = text(src)
	}
	return nil
}

// id is one that may be null, which is Nil.
type id uuid.UUID

func (d *id) ScanUUID(u pgtype.UUID) error {
	*d = u.Bytes
	return nil
}

// number is one that may be null, which is 0.
type number int64

func (n *number) ScanInt64(v pgtype.Int8) error {
	*n = number(v.Int64)
	return nil
}
