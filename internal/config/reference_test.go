package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const referencePage = "../../docs/configuration.md"

// documentedField is a row of docs/configuration.md.
type documentedField struct{ path, value string }

// documentedFields are the rows of a section; "" is what stands before the first.
func documentedFields(t *testing.T, section string) (rows []documentedField) {
	t.Helper()
	text, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if section != "" {
		_, page, _ = strings.Cut(page, "\n## "+section+"\n")
	}
	page, _, _ = strings.Cut(page, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (?:`([^`]*)`)? ?\\|").FindAllStringSubmatch(page, -1) {
		rows = append(rows, documentedField{row[1], row[2]})
	}
	if len(rows) == 0 {
		t.Fatalf("the section %q has no fields", section)
	}
	return rows
}

// knownFields are those that are read below a path, by what is said of one that is not: each object of the file has such a one.
func knownFields(t *testing.T, yaml string) map[string][]string {
	t.Helper()
	_, err := Parse("x.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("%v", err)
	}
	known := map[string][]string{}
	for _, e := range errs {
		if path, ok := strings.CutSuffix(e.Field, "qqqqqqqqqqqq"); ok {
			_, names, found := strings.Cut(e.Reason, "there are ")
			if !found {
				t.Fatalf("%s: %s", e.Field, e.Reason)
			}
			known[strings.TrimSuffix(path, ".")] = strings.Split(names, ", ")
		}
	}
	return known
}

// docs/configuration.md has every field that is read, and no other.
func TestReference(t *testing.T) {
	t.Parallel()
	const bogus = "qqqqqqqqqqqq: 1"
	for section, c := range map[string]struct {
		yaml string // an object for each that there is
		root string
	}{
		"":         {fmt.Sprintf("%[1]s\ndatabase: {%[1]s}\nnats: {%[1]s, tls: {%[1]s}}\nhttp: {%[1]s}\noutcomes: {%[1]s}\nworker: {%[1]s}\nretention: {%[1]s}\nquotas: {%[1]s}\nwebhooks: {%[1]s}\n", bogus), ""},
		"Routes":   {fmt.Sprintf("routes: [{%[1]s, start: {%[1]s}, batch: {%[1]s}, consumer: {%[1]s}}]\n", bogus), "routes[0]"},
		"Machines": {fmt.Sprintf("machines: [{%[1]s, remote: {%[1]s}, retry: {%[1]s}}]\n", bogus), "machines[0]"},
		"Updates":  {fmt.Sprintf("machines: [{updates: [{%[1]s}]}]\n", bogus), "machines[0].updates[0]"},
	} {
		var want []string
		known := knownFields(t, c.yaml)
		for path, names := range known {
			for _, name := range names {
				full := strings.TrimPrefix(strings.TrimPrefix(path+"."+name, c.root), ".")
				if _, object := known[strings.TrimPrefix(path+"."+name, ".")]; !object {
					want = append(want, full)
				}
			}
		}
		var got []string
		for _, row := range documentedFields(t, section) {
			got = append(got, row.path)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("section %q of docs/configuration.md:\n has %v\nwant %v", section, got, want)
		}
	}
}

// The defaults that it names are those of a file that says nothing.
func TestReferenceDefaults(t *testing.T) {
	t.Parallel()
	parse := func(yaml string) *Config {
		c, err := Parse("x.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%v in\n%s", err, yaml)
		}
		c.file, c.where = "", nil
		return c
	}
	const (
		route   = "{name: r, stream: S, subject: s, signal: s, correlation_key: k"
		machine = "{name: m, start: s"
		update  = "{name: u, when: 'true'"
	)
	for section, c := range map[string]struct{ before, after string }{
		"": {"", ""}, "Routes": {"routes: [" + route, "}]"}, "Machines": {"machines: [" + machine, "}]"},
		"Updates": {"machines: [" + machine + ", updates: [" + update, "}]}]"},
	} {
		for _, row := range documentedFields(t, section) {
			if row.value == "" {
				continue
			}
			names := strings.Split(row.path, ".")
			said := row.value
			for _, name := range slices.Backward(names[1:]) {
				said = "{" + name + ": " + said + "}"
			}
			said = names[0] + ": " + said
			if c.before != "" {
				said = ", " + said
			}
			if with, without := parse(c.before+said+c.after), parse(c.before+c.after); !reflect.DeepEqual(with, without) {
				t.Errorf("section %q: %s is not the default of %s", section, row.value, row.path)
			}
		}
	}
}
