package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
)

func (c *Config) readFlows(o *object) {
	type version struct {
		name   string
		number int
	}
	seen := map[version]bool{}
	for _, i := range o.list("flows") {
		o.r.substitute(i.node, i.path)
		fo := o.r.object(i.node, i.path)
		if fo.wrong {
			continue
		}
		f := Flow{Flow: &dag.Flow{Version: 1, Queue: "default"}}
		f.read(fo)
		if fo.described() != nil {
			continue
		}
		f.Hash = hashOf(i.node)
		v := version{f.Name, f.Version}
		if f.Name != "" && seen[v] {
			fo.fail("name", "there is a flow %s with version %d already: give this one another version", f.Name, f.Version)
		}
		seen[v] = true
		if m := slices.IndexFunc(c.Machines, func(m Machine) bool { return m.Name == f.Name && m.Version == f.Version }); m >= 0 && f.Name != "" {
			fo.fail("name", "there is a machine %s with version %d already: give the flow another name or version", f.Name, f.Version)
		}
		c.Flows = append(c.Flows, f)
	}
}

// hashOf a flow is of what its instances do, in whatever order and layout it is written: not of where they run, or who may update them.
func hashOf(n ast.Node) string {
	var doc map[string]any
	if err := yaml.NodeToValue(n, &doc); err != nil {
		return ""
	}
	delete(doc, "queue")
	delete(doc, "updates")
	text, err := json.Marshal(doc)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// flowReader reads the steps of one flow, and notes their expressions: what these name can be checked when all steps are known.
type flowReader struct {
	r     *reader
	flow  *dag.Flow
	step  int       // that is being read
	sees  dag.Sight // of what is being read
	noted []expression
}

// expression is one in a file.
type expression struct {
	node ast.Node
	text string
	path string
	step int
	sees dag.Sight
	uses []expr.Use
}

// maxFlowName leaves room for the name of the machine of its calls.
const maxFlowName = 120

func (f *Flow) read(o *object) {
	o.token("name", &f.Name)
	o.require("name", "the flow's name")
	if len(f.Name) > maxFlowName {
		o.fail("name", "has %d characters: at most %d", len(f.Name), maxFlowName)
	}
	o.integer("version", &f.Version, 1, math.MaxInt32)
	o.queue("queue", &f.Queue)
	o.duration("timeout", &f.Timeout, time.Second, longest)
	items := o.list("steps")
	if o.described() != nil {
		o.require("steps", "")
	}
	if _, list := o.get("steps").(*ast.SequenceNode); len(items) == 0 && (list || !o.has("steps")) {
		o.fail("steps", "has no step: want at least one")
	}
	if len(items) > dag.MaxSteps {
		o.fail("steps", "has %d steps: at most %d; leave some to a flow that a step starts", len(items), dag.MaxSteps)
		items = items[:dag.MaxSteps]
	}
	fr := &flowReader{r: o.r, flow: f.Flow}
	fr.describeCompensation()
	for i, item := range items {
		fr.step = i
		if fr.describeSteps(&object{r: o.r, path: item.path}) {
			continue
		}
		f.Steps = append(f.Steps, fr.readStep(o.r.object(item.node, item.path)))
	}
	f.Updates = readUpdates(o)
	o.close()
	for _, p := range f.Link() {
		fr.failGraph(o, p)
	}
	fr.checkUses()
}

// failGraph says what is wrong at the place of the field, or of the closest one around it that the file has.
func (fr *flowReader) failGraph(o *object, p dag.Problem) {
	path := o.path + "." + p.Field
	for at := path; at != ""; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
		if place, ok := fr.r.where[at]; ok {
			fr.r.failAt(place, path, "%s", p.Reason)
			return
		}
	}
}

func (fr *flowReader) checkUses() {
	for _, e := range fr.noted {
		for _, u := range e.uses {
			if why := fr.flow.CheckUse(e.step, u, e.sees); why != "" {
				fr.r.failExpression(e.node, e.text, e.path, &expr.CompileError{Line: u.Line, Column: u.Column, Reason: why})
			}
		}
	}
}

// compile compiles an expression of the file with what it is; nil where it is wrong.
func (fr *flowReader) compile(n ast.Node, path, what string, compile func(text string) ([]expr.Use, error)) bool {
	text, ok := fr.r.text(n, path, what)
	if !ok {
		return false
	}
	uses, err := compile(text)
	if wrong := (*expr.CompileError)(nil); errors.As(err, &wrong) && dashed.MatchString(text) {
		wrong.Reason += "; a ref with a - is written steps['aml-check']"
	}
	if err != nil {
		fr.r.failExpression(n, text, path, err)
		return false
	}
	fr.noted = append(fr.noted, expression{n, text, path, fr.step, fr.sees, uses})
	return true
}

var dashed = regexp.MustCompile(`steps\.\w+-`)

// text reads a template that gives text.
func (fr *flowReader) text(o *object, name string, to **expr.Template, check func(literal string) string) {
	if o.get(name) == nil {
		return
	}
	fr.template(o.fields[name].value, o.sub(name), to, check)
}

func (fr *flowReader) template(n ast.Node, path string, to **expr.Template, check func(literal string) string) {
	fr.compile(n, path, "a template", func(text string) ([]expr.Use, error) {
		t, err := dag.Scope.CompileText(text)
		if err != nil {
			return nil, err
		}
		if literal, ok := t.Literal(); ok && check != nil {
			if reason := check(literal); reason != "" {
				fr.r.fail(n, path, "%s", reason)
			}
		}
		*to = t
		return t.Uses(), nil
	})
}

// named is a check of a literal by a validator of names or keys.
func named(check func(field, s string) error) func(string) string {
	return func(s string) string { return reasonOf(check("", s)) }
}

func (fr *flowReader) condition(o *object, name string, to **expr.Condition) {
	if o.get(name) == nil {
		return
	}
	fr.compile(o.fields[name].value, o.sub(name), "a condition", func(text string) ([]expr.Use, error) {
		c, err := dag.Scope.CompileWhen(text)
		if err != nil {
			return nil, err
		}
		*to = c
		return c.Uses(), nil
	})
}

// value reads a document whose texts are templates.
func (fr *flowReader) value(o *object, name string, to **dag.Value) {
	if f, ok := o.fields[name]; ok {
		*to = fr.document(f.value, o.sub(name))
	}
	o.known = append(o.known, name)
	o.describes(name, description{})
}

func (fr *flowReader) document(n ast.Node, path string) *dag.Value {
	switch v := fr.r.resolve(n).(type) {
	case nil:
		return &dag.Value{JSON: json.RawMessage("null")}
	case *ast.MappingNode, *ast.MappingValueNode:
		o := fr.r.object(n, path)
		value := &dag.Value{Object: map[string]*dag.Value{}}
		for _, name := range o.order {
			value.Object[name] = fr.document(o.fields[name].value, o.sub(name))
		}
		return value
	case *ast.SequenceNode:
		value := &dag.Value{List: []*dag.Value{}}
		for i, item := range v.Values {
			value.List = append(value.List, fr.document(item, fmt.Sprintf("%s[%d]", path, i)))
		}
		return value
	case *ast.StringNode, *ast.LiteralNode:
		value := &dag.Value{JSON: json.RawMessage("null")}
		fr.compile(n, path, "a template", func(text string) ([]expr.Use, error) {
			t, err := dag.Scope.Compile(text)
			if err != nil {
				return nil, err
			}
			value.Template = t
			return t.Uses(), nil
		})
		return value
	default:
		doc, err := yaml.YAMLToJSON([]byte(v.String()))
		doc = []byte(strings.TrimSpace(string(doc)))
		if err == nil {
			err = ident.JSON("", doc, ident.MaxJSON)
		}
		if err != nil {
			fr.r.fail(n, path, "is no value of JSON: put quotes around it")
			return &dag.Value{JSON: json.RawMessage("null")}
		}
		return &dag.Value{JSON: doc}
	}
}
