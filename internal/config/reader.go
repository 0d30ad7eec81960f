package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// reader goes over the tree of a file and collects what is wrong with it.
type reader struct {
	file    string
	env     func(string) (string, bool)
	errs    Errors
	lines   []string
	anchors map[string]ast.Node
	where   map[string]position
	// described has the schema of what is asked for, by its path; nil: a file is read.
	described map[string]*description
}

// maxFile bounds what is parsed: the parser is recursive.
const maxFile = 1 << 20

// parse returns the root of the only document, nil for an empty one or one that is no YAML.
func (r *reader) parse(data []byte) (root ast.Node) {
	// The parser is known to panic on some malformed files.
	defer func() {
		if p := recover(); p != nil {
			root = nil
			r.fail(nil, "", "is not valid YAML")
		}
	}()
	if len(data) > maxFile {
		r.fail(nil, "", "is larger than %s", formatSize(maxFile))
		return nil
	}
	if !utf8.Valid(data) {
		r.fail(nil, "", "is not valid UTF-8")
		return nil
	}
	r.lines = strings.Split(string(data), "\n")
	// Fields that are there twice are found later, where the first one is known too.
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.failSyntax(err)
		return nil
	}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			r.fail(doc.Body, "", "has more than one document: keep one")
			return nil
		}
		root = doc.Body
	}
	return root
}

func (r *reader) failSyntax(err error) {
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil {
		r.fail(nil, "", "is not valid YAML: %v", err)
		return
	}
	at := r.at(syntax.GetToken())
	hint := ""
	if at.line > 0 && unquotedTemplate.MatchString(r.lines[at.line-1]) {
		hint = `; put quotes around a template: "{{…}}"`
	}
	r.failAt(at, "", "is not valid YAML: %s%s", syntax.GetMessage(), hint)
}

var unquotedTemplate = regexp.MustCompile(`(:|-|\[|,) +\{\{`)

// anchor notes the anchors below n, and the aliases of none.
func (r *reader) anchor(n ast.Node) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			r.anchor(v)
		}
	case *ast.MappingValueNode:
		r.anchor(n.Value)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			r.anchor(v)
		}
	case *ast.TagNode:
		r.anchor(n.Value)
	case *ast.AnchorNode:
		if n.Name != nil {
			r.anchors[n.Name.GetToken().Value] = n.Value
		}
		r.anchor(n.Value)
	case *ast.AliasNode:
		if n.Value == nil {
			return
		}
		if name := n.Value.GetToken().Value; r.anchors[name] == nil {
			r.fail(n, "", "the alias *%s has no anchor &%s before it", name, name)
		}
	}
}

// substitute replaces the environment's variables in every value below n, for who reads the tree by himself.
func (r *reader) substitute(n ast.Node, path string) {
	replace := func(s *string) {
		result, reason := substitute(*s, r.env)
		if reason != "" {
			r.fail(n, path, "%s", reason)
			return
		}
		*s = result
	}
	switch n := n.(type) {
	case *ast.StringNode:
		replace(&n.Value)
	case *ast.LiteralNode:
		if n.Value != nil {
			replace(&n.Value.Value)
		}
	case *ast.MappingNode:
		for _, v := range n.Values {
			r.substitute(v, path)
		}
	case *ast.MappingValueNode:
		r.substitute(n.Value, path)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			r.substitute(v, path)
		}
	case *ast.TagNode:
		r.substitute(n.Value, path)
	case *ast.AnchorNode:
		r.substitute(n.Value, path)
	}
}

// fail notes what is wrong at n. A nil n is the file as such.
func (r *reader) fail(n ast.Node, field, format string, args ...any) {
	r.failAt(r.place(n), field, format, args...)
}

func (r *reader) failAt(at position, field, format string, args ...any) {
	r.errs = append(r.errs, Error{File: r.file, Line: at.line, Column: at.column, Field: field, Reason: fmt.Sprintf(format, args...)})
}

// place is where n begins, as a reader of the file would say.
func (r *reader) place(n ast.Node) position {
	switch n := n.(type) {
	case nil:
		return position{}
	case *ast.MappingNode:
		// The token of a mapping in block style is its first colon.
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return r.place(n.Values[0])
		}
	case *ast.MappingValueNode:
		return r.place(n.Key)
	case *ast.LiteralNode:
		if n.Start != nil {
			return r.at(n.Start)
		}
	}
	return r.at(n.GetToken())
}

// at keeps within the file: the parser places what is not there, as an empty value at the end, a little beyond.
func (r *reader) at(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	line := min(max(t.Position.Line, 1), len(r.lines))
	return position{line, min(max(t.Position.Column, 1), utf8.RuneCountInString(r.lines[line-1])+1)}
}

// resolve looks through anchors, aliases and tags. It returns nil for null, and for nothing.
func (r *reader) resolve(n ast.Node) ast.Node {
	for range 100 { // an alias may stand for itself
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.TagNode:
			n = v.Value
		case *ast.AliasNode:
			if v.Value == nil {
				return nil
			}
			n = r.anchors[v.Value.GetToken().Value]
		case *ast.NullNode:
			return nil
		default:
			return n
		}
	}
	return nil
}

// text returns the text of a scalar with the environment's variables replaced, and notes where it cannot.
func (r *reader) text(n ast.Node, path, want string) (text string, ok bool) {
	if d := r.described[path]; d != nil {
		d.Type = scalars
		return "", false
	}
	v := r.resolve(n)
	if v == nil {
		r.fail(n, path, "is empty: want %s", want)
		return "", false
	}
	text, ok = scalar(v)
	if !ok {
		hint := ""
		if m, ok := v.(*ast.MappingNode); ok && m.IsFlowStyle {
			hint = `; put quotes around a template: "{{…}}"`
		}
		r.fail(n, path, "is %s, want %s%s", describe(v), want, hint)
		return "", false
	}
	text, reason := substitute(text, r.env)
	if reason != "" {
		r.fail(n, path, "%s", reason)
		return "", false
	}
	return text, true
}

// scalar returns the text of a scalar as it stands in the file: 0123 and yes are what they look like.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		if n.Value == nil {
			return "", true
		}
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	default:
		return "a " + strings.ToLower(n.Type().String())
	}
}
