package store

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What encodable replaces reaches the server as it was.
func TestEncodable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id, text, number := uuid.New(), "text", int64(7)
	got := ""
	err := f.each(t.Context(), "encode", `select concat_ws(' ', $1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::uuid[])`, func(r pgx.Rows) error { return r.Scan(&got) },
		[]uuid.UUID{id}, []*uuid.UUID{nil, &id}, []*string{&text, nil}, []*int64{nil, &number}, []uuid.UUID(nil))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "arrays", got, "{"+id.String()+"} {NULL,"+id.String()+"} {text,NULL} {NULL,7} {}")
}
