package config

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	const first = `{name: first, stream: S, subject: "a.*", signal: s, correlation_key: "{{payload.k}}"}`
	for second, want := range map[string]string{
		`subject: "*.b", signal: s, correlation_key: "{{payload.k}}"`:                                                   "the second is a duplicate",
		`subject: "*.b", signal: s, correlation_key: ["{{payload.j}}", "{{payload.k}}"], dedup_key: "d-{{subject[0]}}"`: "gets it twice",
		`subject: "*.b", signal: other, correlation_key: "{{payload.k}}"`:                                               "is a conflict",
		`subject: "*.b", signal: s, correlation_key: "{{payload.k}}", when: "payload.n > 0"`:                            "the second is a duplicate",
		`subject: "*.b", signal: other, correlation_key: "{{payload.k}}", dedup_key: "d-{{subject[0]}}"`:                "",
		`subject: "b.*", signal: s, correlation_key: "{{payload.k}}"`:                                                   "",
		`subject: "*.b", signal: s, correlation_key: "{{payload.other}}"`:                                               "",
		`subject: "*.b", signal: s, correlation_key: "{{payload.k}}", project: other`:                                   "",
		`subject: "*.b", start: {machine: m}, correlation_key: "{{payload.k}}"`:                                         "",
	} {
		c := parse(t, "routes:\n  - "+first+"\n  - {name: second, stream: S, "+second+"}\n", noEnvironment)
		got := c.Warnings()
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].Error(), want) || !strings.HasPrefix(got[0].Error(), "test.yaml:3:")) {
			t.Errorf("%s: got %v, want %q", second, got, want)
		}
	}
	exclusive := "routes:\n  - {name: a, stream: S, subject: a, signal: s, correlation_key: k, when: \"payload.n > 0\"}\n" +
		"  - {name: b, stream: S, subject: a, signal: s, correlation_key: k, when: \"payload.n <= 0\"}\n  - {name: c, stream: T, subject: a, signal: s, correlation_key: k}\n"
	if got := parse(t, exclusive, noEnvironment).Warnings(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
