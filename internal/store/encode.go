package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// encodable replaces slices that pgx would write through their elements' driver.Valuer, as text and by way of an error, one by one.
func encodable(args []any) []any {
	for i, arg := range args {
		switch ids := arg.(type) {
		case []uuid.UUID:
			out := make([]pgtype.UUID, len(ids))
			for k, id := range ids {
				out[k] = pgtype.UUID{Bytes: id, Valid: true}
			}
			args[i] = pgtype.FlatArray[pgtype.UUID](out)
		case []*uuid.UUID:
			out := make([]pgtype.UUID, len(ids))
			for k, id := range ids {
				if id != nil {
					out[k] = pgtype.UUID{Bytes: *id, Valid: true}
				}
			}
			args[i] = pgtype.FlatArray[pgtype.UUID](out)
		case []*string:
			args[i] = pgtype.FlatArray[*string](ids)
		case []*int64:
			args[i] = pgtype.FlatArray[*int64](ids)
		}
	}
	return args
}
