package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// Use is one way down from a variable, as far as it is written out: steps['aml-check'].output is steps, with aml-check and output.
type Use struct {
	Variable string
	Path     []string
	Line     int // where it stands in the source, as [CompileError] counts
	Column   int
}

// usesOf are the uses in an expression that stands in src at from.
func usesOf(checked *cel.Ast, src string, from int, text string) (uses []Use) {
	root := ast.NavigateAST(checked.NativeRep())
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		u := Use{Variable: e.AsIdent()}
		at := checked.NativeRep().SourceInfo().GetStartLocation(e.ID())
		place := errorAt(src, from+byteOffset(text, at.Line(), at.Column()), "")
		u.Line, u.Column = place.Line, place.Column
		for node := e; ; {
			parent, ok := node.Parent()
			if !ok {
				break
			}
			name, ok := selected(parent, node)
			if !ok {
				break
			}
			u.Path, node = append(u.Path, name), parent
		}
		uses = append(uses, u)
	}
	return uses
}

// selected is the member of node that its parent goes to.
func selected(parent, node ast.NavigableExpr) (name string, ok bool) {
	switch parent.Kind() {
	case ast.SelectKind:
		return parent.AsSelect().FieldName(), true
	case ast.CallKind:
		call := parent.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			key := call.Args()[1]
			if call.Args()[0].ID() == node.ID() && key.Kind() == ast.LiteralKind {
				text, ok := key.AsLiteral().(types.String)
				return string(text), ok
			}
		}
	}
	return "", false
}
