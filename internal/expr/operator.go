package expr

import (
	"cmp"
	"math/big"
	"strconv"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// CEL dispatches an operator on its left operand, whose type is often CEL's own and does not know ours. So the plan's
// operators are replaced by ones that look at both sides, and leave to CEL what has no number in it.

var binaryOperators = map[string]func(l, r ref.Val) ref.Val{
	operators.Add:           arithmetic(operators.Add),
	operators.Subtract:      arithmetic(operators.Subtract),
	operators.Multiply:      arithmetic(operators.Multiply),
	operators.Divide:        arithmetic(operators.Divide),
	operators.Modulo:        arithmetic(operators.Modulo),
	operators.Less:          ordering(func(c int) bool { return c < 0 }),
	operators.LessEquals:    ordering(func(c int) bool { return c <= 0 }),
	operators.Greater:       ordering(func(c int) bool { return c > 0 }),
	operators.GreaterEquals: ordering(func(c int) bool { return c >= 0 }),
	operators.Equals:        equal,
	operators.NotEquals:     func(l, r ref.Val) ref.Val { return types.Bool(equal(l, r) != types.True) },
	operators.In:            func(l, r ref.Val) ref.Val { return contains(r, l) },
}

// withNumbers is the decorator of the plan.
func withNumbers(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok {
		return node, nil
	}
	args := call.Args()
	if op, ok := binaryOperators[call.Function()]; ok && len(args) == 2 {
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), args, func(v ...ref.Val) ref.Val {
			return op(v[0], v[1])
		}), nil
	}
	if op := unaryOperator(call.Function()); op != nil && len(args) == 1 {
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), args, func(v ...ref.Val) ref.Val {
			return op(v[0])
		}), nil
	}
	return node, nil
}

func unaryOperator(function string) func(ref.Val) ref.Val {
	switch function {
	case operators.Negate:
		return negate
	case "int":
		return conversion(types.IntType)
	case "uint":
		return conversion(types.UintType)
	case "double":
		return conversion(types.DoubleType)
	case "string":
		return conversion(types.StringType)
	}
	return nil
}

func conversion(t ref.Type) func(ref.Val) ref.Val {
	return func(v ref.Val) ref.Val { return v.ConvertToType(t) }
}

func negate(v ref.Val) ref.Val {
	if n, ok := v.(number); ok {
		r, ok := toRat(n)
		if !ok {
			return types.NewErr("number out of range")
		}
		return fromRat(r.Neg(r))
	}
	if n, ok := v.(traits.Negater); ok {
		return n.Negate()
	}
	return noOverload(operators.Negate, v)
}

// mixed says whether l and r are both numeric and one is a number of ours.
func mixed(l, r ref.Val) bool {
	_, ours := l.(number)
	if !ours {
		_, ours = r.(number)
	}
	return ours && numeric(l) && numeric(r)
}

func numeric(v ref.Val) bool {
	switch v.(type) {
	case number, types.Int, types.Uint, types.Double:
		return true
	}
	return false
}

func arithmetic(operator string) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		if !mixed(l, r) {
			return celArithmetic(operator, l, r)
		}
		x, xok := toRat(l)
		y, yok := toRat(r)
		if !xok || !yok {
			return types.NewErr("number out of range")
		}
		whole := integral(l) && integral(r)
		if (operator == operators.Divide || operator == operators.Modulo) && y.Sign() == 0 {
			return types.NewErr("division by zero")
		}
		switch operator {
		case operators.Add:
			return fromRat(x.Add(x, y))
		case operators.Subtract:
			return fromRat(x.Sub(x, y))
		case operators.Multiply:
			return fromRat(x.Mul(x, y))
		case operators.Divide:
			if whole {
				return number(new(big.Int).Quo(x.Num(), y.Num()).String())
			}
			return fromRat(x.Quo(x, y))
		}
		if !whole {
			return noOverload(operator, l, r)
		}
		return number(new(big.Int).Rem(x.Num(), y.Num()).String())
	}
}

func integral(v ref.Val) bool {
	switch v := v.(type) {
	case number:
		return v.integral()
	case types.Double:
		return false
	}
	return true
}

// celArithmetic is what CEL's standard library binds to these operators.
func celArithmetic(operator string, l, r ref.Val) ref.Val {
	switch operator {
	case operators.Add:
		if v, ok := l.(traits.Adder); ok {
			return v.Add(r)
		}
	case operators.Subtract:
		if v, ok := l.(traits.Subtractor); ok {
			return v.Subtract(r)
		}
	case operators.Multiply:
		if v, ok := l.(traits.Multiplier); ok {
			return v.Multiply(r)
		}
	case operators.Divide:
		if v, ok := l.(traits.Divider); ok {
			return v.Divide(r)
		}
	case operators.Modulo:
		if v, ok := l.(traits.Modder); ok {
			return v.Modulo(r)
		}
	}
	return noOverload(operator, l, r)
}

func ordering(holds func(c int) bool) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		if mixed(l, r) {
			if c, ok := compare(l, r); ok {
				return types.Bool(holds(c))
			}
			l, r = native(l), native(r)
		}
		v, ok := l.(traits.Comparer)
		if !ok {
			return noOverload("comparison", l, r)
		}
		c := v.Compare(r)
		if c, ok := c.(types.Int); ok {
			return types.Bool(holds(int(c)))
		}
		return c
	}
}

func native(v ref.Val) ref.Val {
	if n, ok := v.(number); ok {
		return n.native()
	}
	return v
}

// compare orders two numeric values exactly. It cannot where one is infinite, NaN or out of range.
func compare(l, r ref.Val) (int, bool) {
	if x, ok := small(l); ok {
		if y, ok := small(r); ok {
			return cmp.Compare(x, y), true
		}
	}
	x, xok := toRat(l)
	y, yok := toRat(r)
	if !xok || !yok {
		return 0, false
	}
	return x.Cmp(y), true
}

// small is the way without allocation that nearly every comparison takes.
func small(v ref.Val) (int64, bool) {
	switch v := v.(type) {
	case types.Int:
		return int64(v), true
	case number:
		i, err := strconv.ParseInt(string(v), 10, 64)
		return i, err == nil
	}
	return 0, false
}

// equal is CEL's equality, with exact numbers at any depth.
func equal(l, r ref.Val) ref.Val {
	if mixed(l, r) {
		if c, ok := compare(l, r); ok {
			return types.Bool(c == 0)
		}
		return types.Equal(native(l), native(r))
	}
	switch x := l.(type) {
	case number:
		return types.False
	case traits.Lister:
		if y, ok := r.(traits.Lister); ok {
			return equalLists(x, y)
		}
		return types.False
	case traits.Mapper:
		if y, ok := r.(traits.Mapper); ok {
			return equalMaps(x, y)
		}
		return types.False
	}
	return types.Equal(l, r)
}

func equalLists(l, r traits.Lister) ref.Val {
	if l.Size() != r.Size() {
		return types.False
	}
	for x, y := l.Iterator(), r.Iterator(); x.HasNext() == types.True; {
		if equal(x.Next(), y.Next()) != types.True {
			return types.False
		}
	}
	return types.True
}

func equalMaps(l, r traits.Mapper) ref.Val {
	if l.Size() != r.Size() {
		return types.False
	}
	for keys := l.Iterator(); keys.HasNext() == types.True; {
		key := keys.Next()
		x, _ := l.Find(key)
		y, ok := r.Find(key)
		if !ok || equal(x, y) != types.True {
			return types.False
		}
	}
	return types.True
}

// contains is "value in container".
func contains(container, value ref.Val) ref.Val {
	switch c := container.(type) {
	case traits.Lister:
		for it := c.Iterator(); it.HasNext() == types.True; {
			if equal(it.Next(), value) == types.True {
				return types.True
			}
		}
		return types.False
	case traits.Mapper:
		found, ok := c.Find(native(value))
		if !ok && types.IsError(found) {
			return found
		}
		return types.Bool(ok)
	}
	return noOverload(operators.In, value, container)
}

func noOverload(operator string, operands ...ref.Val) ref.Val {
	if name, ok := operators.FindReverse(operator); ok && name != "" {
		operator = name
	}
	text := "cannot apply " + operator + " to "
	for i, v := range operands {
		if i > 0 {
			text += " and "
		}
		text += kind(v)
	}
	return types.NewErr("%s", text)
}
