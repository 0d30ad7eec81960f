package config

import (
	"errors"
	"strings"

	"github.com/pointsman/pointsman/internal/expr"

	"github.com/goccy/go-yaml/ast"
)

// template compiles the text of n, nil when it is wrong.
func (r *reader) template(n ast.Node, path string) *expr.Template {
	text, ok := r.text(n, path, "a template")
	if !ok {
		return nil
	}
	t, err := expr.Compile(text)
	if err != nil {
		r.failExpression(n, text, path, err)
		return nil
	}
	return t
}

// condition compiles the text of n, nil when it is wrong.
func (r *reader) condition(n ast.Node, path string) *expr.Condition {
	text, ok := r.text(n, path, "a condition")
	if !ok {
		return nil
	}
	c, err := expr.CompileWhen(text)
	if err != nil {
		r.failExpression(n, text, path, err)
		return nil
	}
	return c
}

// failExpression points into the expression where the file has its text on one line as it is; else to where it begins.
func (r *reader) failExpression(n ast.Node, text, path string, err error) {
	var compile *expr.CompileError
	s, ok := r.resolve(n).(*ast.StringNode)
	if !errors.As(err, &compile) || !ok || s.Token == nil || compile.Line != 1 {
		r.fail(n, path, "%v", err)
		return
	}
	at := r.place(s)
	switch verbatim := strings.TrimSpace(s.Token.Origin); verbatim {
	case text:
	case `"` + text + `"`, `'` + text + `'`:
		at.column++
	default:
		r.fail(n, path, "%v", err)
		return
	}
	at.column += compile.Column - 1
	r.failAt(at, path, "%s", compile.Reason)
}
