package expr

import (
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/internal/ident"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// number is a number of the payload, or what arithmetic made of one, as its JSON text. Text, because a float would
// change 12345678901234567, and an integer cannot hold 1.10. It is a CEL type of its own: a function that expects
// an int or a double says so, instead of getting something else, and string(), int() and double() convert.
type number string

var numberType = cel.ObjectType("number")

func (n number) Type() ref.Type { return numberType }

func (n number) Value() any { return n.native().Value() }

func (n number) Equal(other ref.Val) ref.Val { return equal(n, other) }

func (n number) ConvertToNative(t reflect.Type) (any, error) { return n.native().ConvertToNative(t) }

func (n number) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.StringType:
		return types.String(n)
	case types.IntType, types.UintType, types.DoubleType:
		return n.native().ConvertToType(t)
	case types.TypeType:
		return n.native().Type().(ref.Val)
	case numberType:
		return n
	}
	return types.NewErr("type conversion error from 'number' to '%s'", t)
}

// native is the number as CEL has them: an int or uint where one holds it, else the nearest double.
func (n number) native() ref.Val {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return types.Uint(u)
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil && !math.IsInf(f, 0) {
		return types.WrapErr(errNotJSON)
	}
	return types.Double(f)
}

// integral says whether the number is written as an integer: then it divides like one.
func (n number) integral() bool { return !strings.ContainsAny(string(n), ".eE") }

// toRat is the exact value of a finite number. A double counts as its shortest decimal, so that 1.1 in an
// expression equals 1.1 in a payload.
func toRat(v ref.Val) (*big.Rat, bool) {
	switch v := v.(type) {
	case number:
		// The validator bounds digits and exponent: of 1e999999999 a Rat would be made for minutes.
		if ident.JSON("", []byte(v), len(v)) != nil {
			return nil, false
		}
		return new(big.Rat).SetString(string(v))
	case types.Int:
		return new(big.Rat).SetInt64(int64(v)), true
	case types.Uint:
		return new(big.Rat).SetUint64(uint64(v)), true
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
	return nil, false
}

// maxBits bounds what arithmetic makes, some 5,000 digits: repeated squaring would not end otherwise.
const maxBits = 1 << 14

// fromRat writes r in decimal. Only a division gives what has no finite decimal form; it is rounded to 17 digits after the point.
func fromRat(r *big.Rat) ref.Val {
	if r.Num().BitLen()+r.Denom().BitLen() > maxBits {
		return types.NewErr("number out of range")
	}
	if r.IsInt() {
		return number(r.Num().String())
	}
	digits, exact := r.FloatPrec()
	if exact {
		return number(r.FloatString(digits))
	}
	text := strings.TrimRight(r.FloatString(17), "0")
	return number(strings.TrimSuffix(text, "."))
}
