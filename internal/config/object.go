package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"

	"github.com/goccy/go-yaml/ast"
)

// object is a mapping whose fields are asked for one by one, each into a variable that holds its default.
// A field that is absent or null leaves the variable alone; one that is wrong is noted and leaves it alone too,
// so that the rest can be checked. close notes the fields that nobody asked for.
type object struct {
	r      *reader
	path   string
	node   ast.Node
	fields map[string]*field
	order  []string
	known  []string
	wrong  bool // it is no mapping, which has been noted
}

type field struct {
	key   ast.Node
	value ast.Node // as it stands
}

// object reads n, which may be nil, as a mapping.
func (r *reader) object(n ast.Node, path string) *object {
	o := &object{r: r, path: path, node: n, fields: map[string]*field{}}
	o.add(n, false, 0)
	return o
}

// add takes the fields of a mapping. Those of a merged one (<<) give way to those that are there.
func (o *object) add(n ast.Node, merged bool, depth int) {
	var values []*ast.MappingValueNode
	switch m := o.r.resolve(n).(type) {
	case nil:
		return
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		o.wrong = true
		o.r.fail(n, o.path, "is %s, want a mapping of fields", describe(m))
		return
	}
	var merges []ast.Node
	for _, v := range values {
		if v.Key.IsMergeKey() {
			merges = append(merges, v.Value)
			continue
		}
		name := v.Key.GetToken().Value
		first, ok := o.fields[name]
		switch {
		case !ok:
			o.fields[name] = &field{key: v.Key, value: v.Value}
			o.order = append(o.order, name)
			o.r.where[o.sub(name)] = o.r.place(v.Value)
		case !merged:
			o.r.fail(v.Key, o.sub(name), "is there twice, first in line %d: remove one", o.r.place(first.key).line)
		}
	}
	for _, m := range merges {
		if depth < 10 {
			o.add(m, true, depth+1)
		}
	}
}

func (o *object) sub(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// get returns the value of a field, nil when it is absent or null, and makes the field known.
func (o *object) get(name string) ast.Node {
	o.known = append(o.known, name)
	o.describesFirst(name)
	if f, ok := o.fields[name]; ok {
		return o.r.resolve(f.value)
	}
	return nil
}

func (o *object) has(name string) bool {
	if o.described() != nil {
		return true // so that what is read then is asked for
	}
	f, ok := o.fields[name]
	return ok && o.r.resolve(f.value) != nil
}

// fail notes what is wrong with a field, at its value, or at the object when the field is absent.
func (o *object) fail(name, format string, args ...any) {
	n := o.node
	if f, ok := o.fields[name]; ok {
		n = f.value
	}
	o.r.fail(n, o.sub(name), format, args...)
}

// require notes that a field is missing.
func (o *object) require(name, what string) {
	if d := o.described(); d != nil {
		d.Required = append(d.Required, name)
		return
	}
	if !o.has(name) && !o.wrong {
		o.fail(name, "is missing: want %s", what)
	}
}

// close notes the fields that no one asked for.
func (o *object) close() {
	for _, name := range o.order {
		if slices.Contains(o.known, name) {
			continue
		}
		reason := "is unknown: there are " + strings.Join(o.known, ", ")
		if near := suggest(name, o.known); near != "" {
			reason = fmt.Sprintf("is unknown: did you mean %s?", near)
		}
		o.r.fail(o.fields[name].key, o.sub(name), "%s", reason)
	}
}

// read calls set with the text of a field, which returns what is wrong with it.
func (o *object) read(name, want string, set func(text string) (reason string)) {
	if o.get(name) == nil {
		return
	}
	text, ok := o.r.text(o.fields[name].value, o.sub(name), want)
	if !ok {
		return
	}
	if reason := set(text); reason != "" {
		o.fail(name, "%s", reason)
	}
}

func (o *object) text(name string, to *string) { o.checked(name, to, checkAny) }

// checked reads a text. An empty one leaves the default, as a variable of the environment that is not set does.
func (o *object) checked(name string, to *string, check func(string) string) {
	o.read(name, "text", func(text string) string {
		if text == "" {
			return ""
		}
		reason := check(text)
		if reason == "" {
			*to = text
		}
		return reason
	})
}

// token reads a name that is a token of a subject.
func (o *object) token(name string, to *string) { o.named(name, to, ident.Token) }

func (o *object) name(name string, to *string) { o.named(name, to, ident.Name) }

func (o *object) queue(name string, to *string) { o.named(name, to, ident.Queue) }

func (o *object) named(name string, to *string, check func(field, s string) error) {
	o.read(name, "a name", func(text string) string {
		*to = text
		return reasonOf(check("", text))
	})
}

func reasonOf(err error) string {
	var e *ident.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func (o *object) flag(name string, to *bool) {
	o.describes(name, orVariable(description{Type: "boolean"}))
	o.defaults(name, *to)
	o.read(name, "true or false", func(text string) string {
		if text != "true" && text != "false" {
			return fmt.Sprintf("is %q, want true or false", text)
		}
		*to = text == "true"
		return ""
	})
}

func (o *object) integer(name string, to *int, least, most int) {
	o.describesInteger(name, least, most)
	o.defaults(name, *to)
	want := fmt.Sprintf("want an integer from %d to %d", least, most)
	o.read(name, want[len("want "):], func(text string) string {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return fmt.Sprintf("is %q, %s", text, want)
		}
		*to = n
		return ""
	})
}

func (o *object) decimal(name string, to *float64, least, most float64) {
	o.describes(name, orVariable(description{Type: "number", Minimum: &least, Maximum: &most}))
	o.defaults(name, *to)
	o.read(name, "a number", func(text string) string {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= least && f <= most) {
			return fmt.Sprintf("is %q, want a number from %v to %v", text, least, most)
		}
		*to = f
		return ""
	})
}

func (o *object) duration(name string, to *time.Duration, least, most time.Duration) {
	o.describes(name, description{Type: "string", Pattern: durationPattern})
	if *to != 0 {
		o.defaults(name, formatDuration(*to))
	}
	o.read(name, "a duration as 30s or 24h", func(text string) string {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Sprintf("is %q, want a duration as 500ms, 30s or 24h", text)
		}
		if d < least || d > most {
			return fmt.Sprintf("is %s, want %s to %s", formatDuration(d), formatDuration(least), formatDuration(most))
		}
		*to = d
		return ""
	})
}

func (o *object) size(name string, to *int, least, most int) {
	o.describes(name, description{Type: []string{"string", "integer"}})
	o.defaults(name, formatSize(*to))
	o.read(name, "a size as 64KiB or 1MiB", func(text string) string {
		n, ok := parseSize(text)
		if !ok {
			return fmt.Sprintf("is %q, want a size as 1048576, 64KiB or 1MiB", text)
		}
		if n < least || n > most {
			return fmt.Sprintf("is %s, want %s to %s", text, formatSize(least), formatSize(most))
		}
		*to = n
		return ""
	})
}

func (o *object) choice(name string, to *string, options ...string) {
	o.describes(name, orVariable(description{Enum: options}))
	o.defaults(name, *to)
	o.read(name, "one of "+strings.Join(options, ", "), func(text string) string {
		if !slices.Contains(options, text) {
			return fmt.Sprintf("is %q, want one of %s", text, strings.Join(options, ", "))
		}
		*to = text
		return ""
	})
}

func (o *object) template(name string, to **expr.Template) {
	if o.get(name) != nil {
		*to = o.r.template(o.fields[name].value, o.sub(name))
	}
}

// child reads a field that is a mapping; an absent one is as one without fields.
func (o *object) child(name string) *object {
	o.known = append(o.known, name)
	o.describes(name, description{})
	f, ok := o.fields[name]
	if !ok {
		return o.r.object(nil, o.sub(name))
	}
	return o.r.object(f.value, o.sub(name))
}

// item is an element of a list.
type item struct {
	node ast.Node
	path string
}

// list reads a field that is a list.
func (o *object) list(name string) []item {
	if items, ok := o.describesList(name); ok {
		return items
	}
	n := o.get(name)
	if n == nil {
		return nil
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		o.fail(name, "is %s, want a list", describe(n))
		return nil
	}
	items := make([]item, len(seq.Values))
	for i, v := range seq.Values {
		items[i] = item{v, fmt.Sprintf("%s[%d]", o.sub(name), i)}
		o.r.where[items[i].path] = o.r.place(v)
	}
	return items
}

// oneOrMore reads a field that is a value or a list of values.
func (o *object) oneOrMore(name string) []item {
	if o.describesOneOrMore(name) {
		return nil
	}
	n := o.get(name)
	if n == nil {
		return nil
	}
	if _, ok := n.(*ast.SequenceNode); ok {
		return o.list(name)
	}
	return []item{{o.fields[name].value, o.sub(name)}}
}
