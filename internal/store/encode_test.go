package store

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// What encodable replaces reaches the server as it was.
func TestEncodable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id, text, number := uuid.New(), "text", int64(7)
	got := ""
	err := f.each(t.Context(), "encode", `select concat_ws(' ', $1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::bigint[], coalesce($10::text[], '{none}'), $11::text[])`,
		func(r pgx.Rows) error { return r.Scan(&got) },
		[]uuid.UUID{id}, []*uuid.UUID{nil, &id}, []*string{&text, nil}, []*int64{nil, &number}, []uuid.UUID(nil),
		optionals{"", text}, documents{[]byte("1"), nil, {}}, [][]byte{nil, []byte("{}")}, []int64{number, -1}, []string(nil), []string{"", text})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "arrays", got, "{"+id.String()+"} {NULL,"+id.String()+`} {text,NULL} {NULL,7} {} {NULL,text} {1,"null","null"} {NULL,"{}"} {7,-1} {none} {"",text}`)
}

// What a statement takes in thousands is not allocated one by one.
func TestColumnsAreNotAllocated(t *testing.T) {
	m, buf := pgtype.NewMap(), make([]byte, 0, 1<<16)
	ids, texts, numbers := make([]uuid.UUID, 1000), make([]string, 1000), make([]int64, 1000)
	for i := range ids { // zeros would not be allocated anyway
		ids[i], texts[i], numbers[i] = uuid.New(), "text", int64(1000+i)
	}
	for name, column := range map[string]struct {
		oid  uint32
		item any
	}{
		"ids": {pgtype.UUIDArrayOID, ids}, "texts": {pgtype.TextArrayOID, texts},
		"optional texts": {pgtype.TextArrayOID, optionals(texts)}, "numbers": {pgtype.Int8ArrayOID, numbers},
	} {
		encode := func() {
			if _, err := m.Encode(column.oid, pgtype.BinaryFormatCode, encodable([]any{column.item})[0], buf); err != nil {
				t.Error(err)
			}
		}
		encode() // what is planned once
		if n := testing.AllocsPerRun(10, encode); n > 10 {
			t.Errorf("%s: %.0f allocations for a column of 1000", name, n)
		}
	}
}
