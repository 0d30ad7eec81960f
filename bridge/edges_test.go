package bridge

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
)

// The edges of what the contract says of messages: sizes, numbers, several values, nothing at all.
func TestMapEdges(t *testing.T) {
	t.Parallel()
	const place = "ORDERS@1700000000000000001:42"
	base := Route{Name: "r", Stream: "ORDERS", Signal: "paid", CorrelationKeys: []string{"{{payload.key}}"}}
	with := func(change func(*Route)) Route {
		r := base
		change(&r)
		return r
	}
	fixed := func(f Format) Route {
		return with(func(r *Route) { r.CorrelationKeys, r.Format = []string{"k"}, f })
	}
	sized := func(n int) string { // a JSON string of n bytes
		return `"` + strings.Repeat("x", n-2) + `"`
	}
	event := func(members string) *message {
		return msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t",`+members+`}`, "content-type", "application/cloudevents+json")
	}
	several := msg(`{"key":"k"}`)
	several.headers["Who"] = []string{"first", "second"}
	for _, c := range []struct {
		name  string
		route Route
		msg   *message
		want  string
	}{
		{"1 MiB", fixed(FormatJSON), msg(sized(ident.MaxJSON)), "paid to default/k dedup " + place + " payload " + sized(ident.MaxJSON)},
		{"1 MiB and a byte", fixed(FormatJSON), msg(sized(ident.MaxJSON + 1)), "rejected: body: has 1048577 bytes, at most 1048576 are allowed"},
		{"no text", fixed(FormatText), msg(""), "paid to default/k dedup " + place + " payload null"},
		{"no bytes", fixed(FormatBytes), msg(""), "paid to default/k dedup " + place + " payload null"},
		{"a decimal is a key as it was written", base, msg(`{"key":1.0}`), "paid to default/1.0 dedup " + place + ` payload {"key":1.0}`},
		{"a large number is a key", base, msg(`{"key":12345678901234567}`), "paid to default/12345678901234567 dedup " + place + ` payload {"key":12345678901234567}`},
		{
			"numbers and strings in a list may be one key", base, msg(`{"key":[7,"7",7.0]}`),
			"paid to default/7 dedup " + place + ` payload {"key":[7,"7",7.0]}` + "\n" + "paid to default/7.0 dedup " + place + ` payload {"key":[7,"7",7.0]}`,
		},
		{"512 characters of several bytes", base, msg(`{"key":"` + strings.Repeat("é", 512) + `"}`), "paid to default/" + strings.Repeat("é", 512) + " dedup " + place + ` payload {"key":"` + strings.Repeat("é", 512) + `"}`},
		{"513 of them", base, msg(`{"key":"` + strings.Repeat("é", 513) + `"}`), "rejected: correlation_key: has 513 characters"},
		{"NUL in a key", base, msg(`{"key":"a\u0000"}`), `rejected: body: has \u0000, which Postgres cannot hold: remove it (byte 9)`},
		{"NUL in a name", fixed(FormatJSON), msg(`{"\u0000":1}`), `rejected: body: has \u0000, which Postgres cannot hold: remove it (byte 2)`},
		{"a key with a line break", base, msg(`{"key":"a\n"}`), "rejected: correlation_key: has the control character 0x0a"},
		{"a payload keeps its type", with(func(r *Route) { r.Payload = "{{payload.n}}" }), msg(`{"key":"k","n":1.50}`), "paid to default/k dedup " + place + " payload 1.50"},
		{"a payload of text and a number is text", with(func(r *Route) { r.Payload = "n={{payload.n}}" }), msg(`{"key":"k","n":1.50}`), "paid to default/k dedup " + place + ` payload "n=1.50"`},
		{"of several values the first", with(func(r *Route) { r.Payload = "{{headers.Who}}" }), several, "paid to default/k dedup " + place + ` payload "first"`},
		{
			"each of a list is started", with(func(r *Route) { r.OnMissing, r.Start = engine.MissingStart, &Start{Machine: "m"} }), msg(`{"key":["a","b","a"]}`),
			"paid to default/a dedup " + place + ` payload {"key":["a","b","a"]} machine default/m/a state  queue "" reply to ""` + "\n" +
				"paid to default/b dedup " + place + ` payload {"key":["a","b","a"]} machine default/m/b state  queue "" reply to ""`,
		},
		{"an event's bytes as JSON", fixed(FormatJSON), event(`"data_base64":"eyJhIjoxfQ=="`), `paid to default/k dedup /s#i payload {"a":1}`},
		{"an event's bytes that are no JSON", fixed(FormatJSON), event(`"data_base64":"aGk="`), "rejected: body: is not JSON"},
		{"an event's bytes as they are", fixed(FormatBytes), event(`"data_base64":"/wA="`), `paid to default/k dedup /s#i payload "/wA="`},
		{"an event whose data is null beside its bytes", fixed(FormatText), event(`"data":null,"data_base64":"aGk="`), `paid to default/k dedup /s#i payload "hi"`},
	} {
		if got := mapped(t, c.route, c.msg); !strings.HasPrefix(got, c.want) || strings.HasPrefix(got, "paid") && got != c.want {
			t.Errorf("%s:\n got %.300s\nwant %.300s", c.name, got, c.want)
		}
	}
}
