package bridge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/subjects"
)

// What a route that needs a field or two costs for a message, by its size. A whole decode of 64 KiB is some ten thousand allocations.
func BenchmarkMap(b *testing.B) {
	space, err := subjects.New("")
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{1 << 10, 64 << 10} {
		const item = `{"sku":"SKU-0001","quantity":3,"price":12.50,"tags":["a","b"]}`
		body := fmt.Sprintf(`{"items":[%s],"amount":99.90,"id":12345678901234567}`, strings.TrimSuffix(strings.Repeat(item+",", size/(len(item)+1)), ","))
		for _, r := range []Route{
			{Name: "subject", Signal: "item", CorrelationKeys: []string{"order-{{subject[1]}}"}},
			{Name: "field", Signal: "item", CorrelationKeys: []string{"order-{{payload.id}}"}},
			{Name: "when", Signal: "item", CorrelationKeys: []string{"order-{{payload.id}}"}, When: "payload.amount > 0 && payload.id != 7"},
			{Name: "all", Signal: "item", CorrelationKeys: []string{"order-{{payload.id}}"}, When: "payload.amount > 0", DedupKey: "d-{{payload.id}}", Payload: "{{payload.amount}}"},
		} {
			r.Stream, r.Subjects = "ORDERS", []string{"orders.>"}
			rt, err := compile(space, r)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%dKiB", r.Name, size>>10), func(b *testing.B) {
				m := msg(body)
				m.subject = "orders.7.item"
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if got := rt.mapMessage(m); len(got.intakes) != 1 {
						b.Fatal(got)
					}
				}
			})
		}
	}
}
