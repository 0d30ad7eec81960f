package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/pointsman/pointsman/internal/schema"
	"github.com/pointsman/pointsman/subjects"
)

// Update is how an update of a machine is validated. What is set is asked in this order, until something refuses.
type Update struct {
	Name    string
	Schema  string // a JSON Schema of the argument; "": none
	When    string // a condition on the argument, as payload; "": none
	Reason  string // of a refusal because of When; "": that says the condition
	Remote  bool   // a service is asked
	Timeout time.Duration
}

// longestValidation is less than those who ask wait for an answer.
const longestValidation = 15 * time.Second

// maxSchema bounds a schema file.
const maxSchema = 1 << 20

func readUpdates(o *object) (updates []Update) {
	seen := map[string]bool{}
	for _, i := range o.list("updates") {
		u := Update{Timeout: 10 * time.Second}
		uo := o.r.object(i.node, i.path)
		if uo.wrong {
			continue
		}
		u.read(uo)
		if u.Name != "" && seen[u.Name] {
			uo.fail("name", "there is an update %s already: an update has one validator", u.Name)
		}
		seen[u.Name] = true
		updates = append(updates, u)
	}
	return updates
}

func (u *Update) read(o *object) {
	o.name("name", &u.Name)
	o.require("name", "the update's name")
	u.readSchema(o)
	if o.get("when") != nil {
		if c := o.r.condition(o.fields["when"].value, o.sub("when")); c != nil {
			u.When = c.Source()
		}
	}
	o.text("reason", &u.Reason)
	if u.Reason != "" && !o.has("when") {
		o.fail("reason", "is that of when, which is not there: a schema and a service have their own reasons")
	}
	o.flag("remote", &u.Remote)
	if u.Remote && subjects.ValidSubject(u.Name) != nil && u.Name != "" {
		o.fail("name", "%q makes no subject for a remote validator: no dot at either end, no two in a row", u.Name)
	}
	o.duration("timeout", &u.Timeout, shortest, longestValidation)
	if !o.has("schema") && !o.has("schema_file") && !o.has("when") && !o.has("remote") {
		o.fail("name", "is of an update that nothing validates, which needs no entry: want schema, schema_file, when or remote: true")
	}
	o.close()
}

// readSchema reads a schema that stands in the file as YAML, or in a JSON or YAML file beside it.
func (u *Update) readSchema(o *object) {
	inline, file := o.get("schema"), ""
	o.describes("schema", description{})
	o.text("schema_file", &file)
	switch {
	case inline != nil && file != "":
		o.fail("schema_file", "is a second schema beside schema: keep one")
	case inline != nil:
		o.r.substitute(inline, o.sub("schema"))
		u.Schema = compileSchema(o, "schema", func() ([]byte, error) { return schemaOf(inline) })
	case file != "":
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(o.r.file), file)
		}
		u.Schema = compileSchema(o, "schema_file", func() ([]byte, error) { return readSchemaFile(file) })
	}
}

func compileSchema(o *object, field string, read func() ([]byte, error)) string {
	doc, err := read()
	if err == nil {
		_, err = schema.Compile(doc)
	}
	if err != nil {
		o.fail(field, "%v", err)
		return ""
	}
	return string(doc)
}

func schemaOf(n ast.Node) ([]byte, error) {
	var doc any
	if err := yaml.NodeToValue(n, &doc); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

func readSchemaFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSchema {
		return nil, fmt.Errorf("%s is larger than %s", file, formatSize(maxSchema))
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if json.Valid(data) {
		return data, nil
	}
	return yaml.YAMLToJSON(data)
}
