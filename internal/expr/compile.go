package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/pointsman/pointsman/internal/ident"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// CompileError says where in a template or condition what is wrong. Line and Column count from 1, columns in characters.
type CompileError struct {
	Line   int
	Column int
	Reason string
}

func (e *CompileError) Error() string {
	if e.Line == 1 {
		return fmt.Sprintf("column %d: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// errorAt places an error at the byte offset of src.
func errorAt(src string, offset int, reason string) *CompileError {
	before := src[:offset]
	lineStart := strings.LastIndexByte(before, '\n') + 1
	return &CompileError{
		Line:   1 + strings.Count(before, "\n"),
		Column: 1 + utf8.RuneCountInString(before[lineStart:]),
		Reason: reason,
	}
}

// costLimit is in CEL's units, each some ten to a hundred nanoseconds: a comprehension over all that fits into
// a payload of 1 MiB passes, one within another does not.
const costLimit = 1_000_000

// Scope is what expressions can name. It is safe for concurrent use.
type Scope struct {
	environment func() (*cel.Env, error)
	// compiling is held while an expression is compiled: a check that finds an unknown name writes to the environment that all share.
	compiling sync.Mutex
}

func newScope(variables ...cel.EnvOption) *Scope {
	return &Scope{environment: sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(append(variables, cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), ext.Strings(), ext.Encoders())...)
	})}
}

// routes is the scope of the configuration's routes.
var routes = newScope(
	cel.Variable("payload", cel.DynType),
	cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
	cel.Variable("subject", cel.ListType(cel.StringType)),
	cel.Variable("msg.stream", cel.StringType),
	cel.Variable("msg.seq", cel.IntType),
	cel.Variable("msg.time", cel.TimestampType),
	cel.Variable("msg.subject", cel.StringType),
)

// NewScope is one of JSON documents alone, which stand in [Input.Documents] by these names; payload is [Input.Payload].
func NewScope(documents ...string) *Scope {
	variables := make([]cel.EnvOption, len(documents))
	for i, name := range documents {
		variables[i] = cel.Variable(name, cel.DynType)
	}
	return newScope(variables...)
}

// expression is one compiled CEL expression. It is immutable.
type expression struct {
	src          string
	path         *path // set when it is no more than that
	program      cel.Program
	needsPayload bool
	output       *cel.Type
	uses         []Use
}

// compile compiles src[from:to].
func (s *Scope) compile(src string, from, to int) (*expression, error) {
	env, err := s.environment()
	if err != nil {
		return nil, fmt.Errorf("cel environment: %w", err)
	}
	text := src[from:to]
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil, errorAt(src, from, "the expression is empty")
	}
	s.compiling.Lock()
	checked, issues := env.Compile(text)
	s.compiling.Unlock()
	if issues.Err() != nil {
		return nil, issueError(src, from, text, issues)
	}
	program, err := env.Program(checked,
		cel.CostLimit(costLimit),
		cel.CustomDecoratorV2(withNumbers),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization))
	if err != nil {
		return nil, errorAt(src, from, err.Error())
	}
	root := checked.NativeRep().Expr()
	return &expression{
		src:          trimmed,
		path:         pathOf(root),
		program:      program,
		needsPayload: mentions(root, "payload"),
		output:       checked.OutputType(),
		uses:         usesOf(checked, src, from, text),
	}, nil
}

// issueError keeps the first issue: the others usually follow from it.
func issueError(src string, from int, text string, issues *cel.Issues) error {
	if len(issues.Errors()) == 0 {
		return errorAt(src, from, issues.Err().Error())
	}
	first := issues.Errors()[0]
	reason := strings.ReplaceAll(first.Message, " (in container '')", "")
	reason, _, _ = strings.Cut(reason, " expecting {") // every token of the grammar
	return errorAt(src, from+byteOffset(text, first.Location.Line(), first.Location.Column()), reason)
}

// byteOffset of CEL's line, from 1, and column, from 0 in characters. It stays within text.
func byteOffset(text string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		end := strings.IndexByte(text[offset:], '\n')
		if end < 0 {
			break
		}
		offset += end + 1
	}
	for ; column > 0 && offset < len(text); column-- {
		_, size := utf8.DecodeRuneInString(text[offset:])
		offset += size
	}
	return offset
}

func mentions(root ast.Expr, variable string) bool {
	found := false
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && e.AsIdent() == variable
	}))
	return found
}

// eval returns the value for in. The error is an [*ident.Error] whose field is the expression.
func (e *expression) eval(in *Input) (ref.Val, error) {
	if e.path != nil {
		v, reason := e.path.resolve(in)
		if reason != "" {
			return nil, e.errorf("%s", reason)
		}
		if err, ok := v.(error); ok {
			return nil, e.errorf("%v", err)
		}
		return v, nil
	}
	return e.evalProgram(in)
}

func (e *expression) evalProgram(in *Input) (ref.Val, error) {
	v, _, err := e.program.Eval((*activation)(in))
	var canceled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &canceled):
		return nil, e.errorf("takes too long on this message")
	case err != nil && strings.Contains(err.Error(), "invalid qualifier type: expr.number"):
		return nil, e.errorf("a number of the payload is no index by itself: write [int(…)]")
	case err != nil:
		return nil, e.errorf("%v", err)
	}
	return v, nil
}

func (e *expression) errorf(format string, args ...any) error {
	return &ident.Error{Field: e.src, Reason: fmt.Sprintf(format, args...)}
}
