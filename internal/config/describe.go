package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/pointsman/pointsman/internal/dag"
)

// The schema of a file is what its readers ask for: they are run on nothing, and note each field, its type and its bounds. So it cannot say
// anything else than they do. What depends on several fields at once it leaves to them.

// description is a JSON Schema, as far as files need one.
type description struct {
	Schema     string                  `json:"$schema,omitempty"`
	Title      string                  `json:"title,omitempty"`
	Type       any                     `json:"type,omitempty"` // a name, or several
	Const      string                  `json:"const,omitempty"`
	Enum       []string                `json:"enum,omitempty"`
	Pattern    string                  `json:"pattern,omitempty"`
	Minimum    *float64                `json:"minimum,omitempty"`
	Maximum    *float64                `json:"maximum,omitempty"`
	Default    any                     `json:"default,omitempty"`
	Properties map[string]*description `json:"properties,omitempty"`
	Required   []string                `json:"required,omitempty"`
	Items      *description            `json:"items,omitempty"`
	AnyOf      []*description          `json:"anyOf,omitempty"`
	OneOf      []*description          `json:"oneOf,omitempty"`
	Ref        string                  `json:"$ref,omitempty"`
	Defs       map[string]*description `json:"$defs,omitempty"`
	Additional any                     `json:"additionalProperties,omitempty"` // false, or what any other property is
}

// scalars are what stands for a text: a number is one as it is written.
var scalars = []string{"string", "number", "boolean"}

// asText is a number or a flag in quotes, or a text that has a variable of the environment in it, whatever is wanted.
var asText = &description{Type: "string", Pattern: `^(-?[0-9.]+|true|false)$|\$\{`}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|\$\{`

// JSONSchema is the schema of pointsman.yaml, for editors.
func JSONSchema() ([]byte, error) {
	root := &description{Schema: "https://json-schema.org/draft/2020-12/schema", Title: "pointsman.yaml"}
	r := &reader{file: "schema", env: func(string) (string, bool) { return "", false }, anchors: map[string]ast.Node{}, where: map[string]position{}, described: map[string]*description{"": root}}
	Default().read(r.object(nil, ""))
	doc, err := json.MarshalIndent(root, "", "  ")
	return append(doc, '\n'), err
}

// described is the schema of the object; nil: a file is read.
func (o *object) described() *description {
	if o.r.described == nil {
		return nil
	}
	d := o.r.described[o.path]
	if d.Properties == nil {
		d.Type, d.Properties, d.Additional = "object", map[string]*description{}, false
	}
	return d
}

// describes says of a field what it is, where no file is read.
func (o *object) describes(name string, what description) bool {
	d := o.described()
	if d == nil {
		return false
	}
	d.Properties[name] = &what
	o.r.described[o.sub(name)] = d.Properties[name]
	return true
}

// describesFirst is for who may say more of it later.
func (o *object) describesFirst(name string) bool {
	d := o.described()
	return d != nil && (d.Properties[name] != nil || o.describes(name, description{Type: scalars}))
}

// orVariable is for what is no text.
func orVariable(what description) description {
	return description{AnyOf: []*description{&what, asText}}
}

// defaults notes what a field is where the file does not say; what is zero is nothing.
func (o *object) defaults(name string, value any) {
	if d := o.described(); d != nil && !reflect.ValueOf(value).IsZero() {
		d.Properties[name].Default = value
	}
}

func (o *object) describesInteger(name string, least, most int) bool {
	low, high := float64(least), float64(most)
	return o.described() != nil && o.describes(name, orVariable(description{Type: "integer", Minimum: &low, Maximum: &high}))
}

// describesList makes the schema of the items, which the reader of one fills.
func (o *object) describesList(name string) ([]item, bool) {
	if o.described() == nil {
		return nil, false
	}
	items := &description{}
	o.describes(name, description{Type: []string{"array", "null"}, Items: items})
	path := fmt.Sprintf("%s[0]", o.sub(name))
	o.r.described[path] = items
	return []item{{nil, path}}, true
}

func (o *object) describesOneOrMore(name string) bool {
	one := description{Type: scalars}
	return o.described() != nil && o.describes(name, description{AnyOf: []*description{&one, {Type: "array", Items: &one}}})
}

// describesOthers says of all names that are not known what they are.
func (o *object) describesOthers(what description) {
	if d := o.described(); d != nil {
		d.Additional = &what
	}
}

// describeSteps makes an alternative for each type of steps.
func (fr *flowReader) describeSteps(o *object) bool {
	if o.r.described == nil {
		return false
	}
	fr.describeTypes(o.path, slices.Sorted(maps.Keys(stepReaders)), func(o *object, t dag.Type) { fr.readFields(o, t) })
	return true
}

// compensationSchema is what the schema calls what all types of steps have.
const compensationSchema = "compensation"

func (fr *flowReader) describeCompensation() {
	if fr.r.described == nil {
		return
	}
	root := fr.r.described[""]
	root.Defs = map[string]*description{compensationSchema: {}}
	path := "$defs." + compensationSchema
	fr.r.described[path] = root.Defs[compensationSchema]
	fr.describeTypes(path, undoing, func(o *object, t dag.Type) {
		readType(o, &dag.Step{Type: t}, undoing)
		stepReaders[t](fr, o, &dag.Step{Type: t})
	})
}

// describeTypes makes an alternative for each of the types at a path.
func (fr *flowReader) describeTypes(path string, types []dag.Type, read func(o *object, t dag.Type)) {
	d := fr.r.described[path]
	var all []*description
	for _, t := range types {
		one := &description{Title: strings.ReplaceAll(string(t), "_", " ")}
		fr.r.described[path] = one
		read(&object{r: fr.r, path: path, fields: map[string]*field{}}, t)
		one.Properties["type"] = &description{Const: string(t)}
		all = append(all, one)
	}
	*d = description{OneOf: all}
	fr.r.described[path] = d
}
