package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// encodable replaces slices by columns. Of a plain slice pgx makes values of any type, each of which is an allocation, and some of
// them go through their driver.Valuer, as text and by way of an error. No slice is null, but for ids, of which it is none.
func encodable(args []any) []any {
	for i, arg := range args {
		switch s := arg.(type) {
		case []uuid.UUID:
			args[i] = newColumn(some(s), func(id *uuid.UUID) any { return (*uuidItem)(id) })
		case []*uuid.UUID:
			args[i] = newColumn(some(s), func(id **uuid.UUID) any { return (*uuidItem)(*id) })
		case []string:
			args[i] = newColumn(s, func(t *string) any { return (*textItem)(t) })
		case []*string:
			args[i] = newColumn(s, func(t **string) any { return (*textItem)(*t) })
		case optionals:
			args[i] = newColumn(s, func(t *string) any { return (*optionalItem)(t) })
		case [][]byte:
			args[i] = newColumn(s, func(b *[]byte) any { return *b })
		case documents:
			args[i] = newColumn(s, func(d *[]byte) any { return documentItem(*d) })
		case []int64:
			args[i] = newColumn(s, func(n *int64) any { return (*bigintItem)(n) })
		case []*int64:
			args[i] = newColumn(s, func(n **int64) any { return (*bigintItem)(*n) })
		}
	}
	return args
}

// optionals are texts of which the empty ones are null.
type optionals []string

func some[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// documents are JSON; an empty one is a null of JSON's.
type documents [][]byte

func documentItem(d []byte) []byte {
	if len(d) == 0 {
		return jsonNull
	}
	return d
}

var jsonNull = []byte("null")

// column is a slice as an array whose elements are shown as pointers into it; a nil pointer is null.
type column[T any] struct {
	items []T
	shown func(*T) any
}

func newColumn[T any](items []T, shown func(*T) any) pgtype.ArrayGetter {
	return &column[T]{items, shown}
}

func (c *column[T]) Dimensions() []pgtype.ArrayDimension {
	if c.items == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(c.items)), LowerBound: 1}}
}

func (c *column[T]) Index(i int) any { return c.shown(&c.items[i]) }

func (c *column[T]) IndexType() any { return c.shown(new(T)) }

type uuidItem uuid.UUID

func (u *uuidItem) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: *u, Valid: true}, nil }

type textItem string

func (t *textItem) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

type optionalItem string

func (t *optionalItem) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: *t != ""}, nil
}

type bigintItem int64

func (n *bigintItem) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}
