package expr

import (
	"strconv"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// path is an expression that only selects: a variable and the way down from it. Most are, and need no CEL.
type path struct {
	root  string // payload, headers, subject or msg
	steps []step
}

// step goes to a member, or to an element when name is "" and element is set.
type step struct {
	name    string
	index   int64
	element bool
	text    string // as an error names it: .order, [0], ['a-b']
}

// pathOf returns the expression as a path, nil when it is more than one.
func pathOf(e ast.Expr) *path {
	var steps []step
	for {
		switch e.Kind() {
		case ast.IdentKind:
			return newPath(e.AsIdent(), steps)
		case ast.SelectKind:
			sel := e.AsSelect()
			if sel.IsTestOnly() {
				return nil
			}
			steps = append(steps, step{name: sel.FieldName(), text: "." + sel.FieldName()})
			e = sel.Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || call.Args()[1].Kind() != ast.LiteralKind {
				return nil
			}
			switch index := call.Args()[1].AsLiteral().(type) {
			case types.String:
				steps = append(steps, step{name: string(index), text: "[" + strconv.Quote(string(index)) + "]"})
			case types.Int:
				steps = append(steps, step{index: int64(index), element: true, text: "[" + strconv.FormatInt(int64(index), 10) + "]"})
			default:
				return nil
			}
			e = call.Args()[0]
		default:
			return nil
		}
	}
}

// newPath takes the steps last one first.
func newPath(root string, reversed []step) *path {
	steps := make([]step, 0, len(reversed))
	for i := len(reversed) - 1; i >= 0; i-- {
		steps = append(steps, reversed[i])
	}
	const message = "msg."
	if len(root) > len(message) && root[:len(message)] == message {
		steps = append([]step{{name: root[len(message):], text: root[len("msg"):]}}, steps...)
		root = "msg"
	}
	switch {
	case root == "payload":
	case root == "headers" && len(steps) == 1 && !steps[0].element:
	case root == "subject" && len(steps) == 1 && steps[0].element:
	case root == "msg" && len(steps) == 1 && !steps[0].element:
	default:
		return nil
	}
	return &path{root: root, steps: steps}
}

// resolve returns the value at p, or why there is none.
func (p *path) resolve(in *Input) (v ref.Val, reason string) {
	switch p.root {
	case "headers":
		if s, ok := in.header(p.steps[0].name); ok {
			return types.String(s), ""
		}
		return nil, "no such header"
	case "subject":
		tokens := in.subject()
		if i := p.steps[0].index; i >= 0 && i < int64(len(tokens)) {
			return types.String(tokens[i]), ""
		}
		return nil, "the subject " + strconv.Quote(in.Subject) + " has no such token"
	case "msg":
		if v, ok := in.message(p.steps[0].name); ok {
			return v, ""
		}
		return nil, "no such field"
	}
	return p.resolvePayload(in)
}

func (p *path) resolvePayload(in *Input) (ref.Val, string) {
	if len(p.steps) == 0 {
		return in.payload(), ""
	}
	raw := []byte(in.Payload)
	for i := range p.steps {
		next, reason := p.steps[i].down(raw)
		if reason != "" {
			if i < len(p.steps)-1 {
				reason = p.prefix(i) + reason
			}
			return nil, reason
		}
		raw = next
	}
	return toValue(raw), ""
}

// prefix names the step that failed, where it is not the whole expression.
func (p *path) prefix(failed int) string {
	text := p.root
	for _, s := range p.steps[:failed+1] {
		text += s.text
	}
	return text + ": "
}

func (s *step) down(raw []byte) (next []byte, reason string) {
	start := skipSpace(raw, 0)
	opening := byte(0)
	if start < len(raw) {
		opening = raw[start]
	}
	var err error
	switch {
	case opening != '{' && !s.element:
		return nil, "no such field: what should hold it is no object"
	case opening != '[' && s.element:
		return nil, "no such element: what should hold it is no list"
	case s.element:
		if next, err = findElement(raw[start:], s.index); err == nil && next == nil {
			return nil, "no such element"
		}
	default:
		if next, err = findMember(raw[start:], s.name); err == nil && next == nil {
			return nil, "no such field"
		}
	}
	if err != nil {
		return nil, err.Error()
	}
	return next, ""
}
