package expr

import (
	"encoding/json"
	"strings"

	"github.com/pointsman/pointsman/internal/ident"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
)

// Template is literal text with expressions in {{ }}. It is immutable and safe for concurrent use.
type Template struct {
	src   string
	parts []part
}

// part is literal text, or an expression.
type part struct {
	literal string
	expr    *expression
	from    int // of the expression
}

// Compile compiles a template. The error is a [*CompileError].
// What stands outside {{ }} is literal; a literal {{ is written {{"{{"}}.
func Compile(src string) (*Template, error) { return routes.Compile(src) }

// Compile compiles a template of what the scope names. The error is a [*CompileError].
func (s *Scope) Compile(src string) (*Template, error) {
	t := &Template{src: src}
	rest := 0
	for {
		open := strings.Index(src[rest:], "{{")
		if open < 0 {
			break
		}
		open += rest
		end := closing(src, open+2)
		if end < 0 {
			return nil, errorAt(src, open, "{{ is not closed by }}")
		}
		e, err := s.compile(src, open+2, end)
		if err != nil {
			return nil, err
		}
		if open > rest {
			t.parts = append(t.parts, part{literal: src[rest:open]})
		}
		t.parts = append(t.parts, part{expr: e, from: open + 2})
		rest = end + 2
	}
	if rest < len(src) {
		t.parts = append(t.parts, part{literal: src[rest:]})
	}
	return t, nil
}

// closing returns the index of the }} that ends the expression at from, or -1: not one within a string or after an open brace.
func closing(src string, from int) int {
	depth := 0
	for i := from; i < len(src); i++ {
		switch src[i] {
		case '"', '\'':
			if i = closingQuote(src, i, i > from && (src[i-1] == 'r' || src[i-1] == 'R')); i < 0 {
				return -1
			}
		case '{':
			depth++
		case '}':
			if depth > 0 {
				depth--
			} else if strings.HasPrefix(src[i:], "}}") {
				return i
			}
		}
	}
	return -1
}

// closingQuote returns the index of the last byte of the CEL string that begins at i, or -1. A raw string has no escapes.
func closingQuote(src string, i int, raw bool) int {
	quote := src[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(src[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(src); i++ {
		if src[i] == '\\' && !raw {
			i++
		} else if strings.HasPrefix(src[i:], quote) {
			return i + len(quote) - 1
		}
	}
	return -1
}

// Source of the template, as it was compiled.
func (t *Template) Source() string { return t.src }

// CompileText compiles a template that gives text: what can only give a list, an object or nothing is an error of it.
func (s *Scope) CompileText(src string) (*Template, error) {
	t, err := s.Compile(src)
	if err != nil {
		return nil, err
	}
	for _, p := range t.parts {
		if p.expr == nil {
			continue
		}
		switch p.expr.output.Kind() {
		case types.ListKind, types.MapKind, types.NullTypeKind, types.TypeKind:
			return nil, errorAt(src, p.from, "gives "+p.expr.output.String()+", and text is needed here")
		}
	}
	return t, nil
}

// Uses are the ways down from its variables.
func (t *Template) Uses() (all []Use) {
	for _, p := range t.parts {
		if p.expr != nil {
			all = append(all, p.expr.uses...)
		}
	}
	return all
}

// Literal returns the text of a template without expressions.
func (t *Template) Literal() (string, bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && t.parts[0].expr == nil:
		return t.parts[0].literal, true
	}
	return "", false
}

// NeedsPayload says whether an expression mentions the payload.
func (t *Template) NeedsPayload() bool {
	for _, p := range t.parts {
		if p.expr != nil && p.expr.needsPayload {
			return true
		}
	}
	return false
}

// single returns the expression of a template that is one {{ }} and nothing else, nil for any other.
func (t *Template) single() *expression {
	if len(t.parts) == 1 {
		return t.parts[0].expr
	}
	return nil
}

// String renders the template as text. Every expression must give a string, number, boolean or time.
// The error is an [*ident.Error] that names the expression.
func (t *Template) String(in *Input) (string, error) {
	if len(t.parts) == 1 {
		return t.parts[0].string(in)
	}
	var b strings.Builder
	for i := range t.parts {
		s, err := t.parts[i].string(in)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func (p *part) string(in *Input) (string, error) {
	if p.expr == nil {
		return p.literal, nil
	}
	v, err := p.expr.eval(in)
	if err != nil {
		return "", err
	}
	s, reason := toString(v)
	if reason != "" {
		return "", p.expr.errorf("%s", reason)
	}
	return s, nil
}

// Single says whether the template is one {{ }} and nothing else: it keeps the type of its value.
func (t *Template) Single() bool { return t.single() != nil }

// Strings renders the template as text; one that is a single {{ }} which gives a list renders every element, which may be none.
func (t *Template) Strings(in *Input) ([]string, error) {
	e := t.single()
	if e == nil {
		s, err := t.String(in)
		if err != nil {
			return nil, err
		}
		return []string{s}, nil
	}
	v, err := e.eval(in)
	if err != nil {
		return nil, err
	}
	list, ok := v.(traits.Lister)
	if !ok {
		s, reason := toString(v)
		if reason != "" {
			return nil, e.errorf("%s", reason)
		}
		return []string{s}, nil
	}
	all := []string{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		s, reason := toString(it.Next())
		if reason != "" {
			return nil, e.errorf("element %d %s", len(all), reason)
		}
		all = append(all, s)
	}
	return all, nil
}

// JSON renders the template as a JSON document. One that is a single {{ }} gives its value, of whatever type; parts of
// the payload are their original bytes, {{payload}} is the payload itself. Any other gives its text as a JSON string.
// The document may share memory with in. It may be one that Postgres does not hold: check it like any other.
func (t *Template) JSON(in *Input) (json.RawMessage, error) {
	e := t.single()
	if e == nil {
		s, err := t.String(in)
		if err != nil {
			return nil, err
		}
		doc, reason := appendString(nil, s)
		if reason != "" {
			return nil, &ident.Error{Field: t.src, Reason: reason}
		}
		return doc, nil
	}
	if e.path != nil && e.path.root == "payload" && len(e.path.steps) == 0 && len(in.Payload) > 0 {
		return in.Payload, nil
	}
	v, err := e.eval(in)
	if err != nil {
		return nil, err
	}
	if raw := original(v); raw != nil {
		return raw, nil
	}
	doc, reason := appendJSON(nil, v)
	if reason != "" {
		return nil, e.errorf("%s", reason)
	}
	return doc, nil
}
