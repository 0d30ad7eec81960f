package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func BenchmarkTemplate(b *testing.B) {
	// An order of some 2 kB, whose key stands last.
	items := strings.TrimSuffix(strings.Repeat(`{"sku": "SKU-0001", "quantity": 3, "price": 12.50, "note": "with \"quotes\" in it"},`, 20), ",")
	payload := json.RawMessage(fmt.Sprintf(`{"items": [%s], "customer": {"name": "Ann"}, "amount": 99.90, "id": 12345678901234567}`, items))
	for _, src := range []string{"order-{{subject[1]}}", "{{headers['Nats-Msg-Id']}}", "order-{{payload.id}}", "order-{{payload.id + 1}}", "{{payload.items.map(i, i.sku)[0]}}"} {
		tmpl, err := Compile(src)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(src, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				in := &Input{Payload: payload, Headers: map[string][]string{"Nats-Msg-Id": {"1"}}, Subject: "payments.42.confirmed"}
				if _, err := tmpl.String(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	cond, err := CompileWhen("payload.amount > 0")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("when", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ok, err := cond.Eval(&Input{Payload: payload}); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("decode_for_comparison", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := json.Unmarshal(payload, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
