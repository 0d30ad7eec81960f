package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Condition is an expression that gives a boolean. It is immutable and safe for concurrent use.
type Condition struct{ expr *expression }

// CompileWhen compiles a condition. The error is a [*CompileError].
func CompileWhen(src string) (*Condition, error) { return routes.CompileWhen(src) }

// CompileWhen compiles a condition on what the scope names. The error is a [*CompileError].
func (s *Scope) CompileWhen(src string) (*Condition, error) {
	if strings.HasPrefix(strings.TrimSpace(src), "{{") {
		return nil, errorAt(src, 0, "a condition is an expression by itself: write it without {{ }}")
	}
	e, err := s.compile(src, 0, len(src))
	if err != nil {
		return nil, err
	}
	if !e.output.IsExactType(cel.BoolType) && !e.output.IsExactType(cel.DynType) {
		return nil, errorAt(src, 0, "gives "+e.output.String()+", and a condition must give bool")
	}
	return &Condition{e}, nil
}

// Source of the condition, without the space around it.
func (c *Condition) Source() string { return c.expr.src }

// NeedsPayload says whether the condition mentions the payload.
func (c *Condition) NeedsPayload() bool { return c.expr.needsPayload }

// Uses are the ways down from its variables.
func (c *Condition) Uses() []Use { return c.expr.uses }

// Eval says whether the condition holds. A field that it names and the message lacks is an error, unless has() asks for it first;
// the error is an [*ident.Error] that names the condition.
func (c *Condition) Eval(in *Input) (bool, error) {
	v, err := c.expr.eval(in)
	if err != nil {
		return false, err
	}
	holds, ok := v.(types.Bool)
	if !ok {
		return false, c.expr.errorf("is %s, and a condition must give a boolean", kind(v))
	}
	return bool(holds), nil
}
