package expr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// toValue makes a CEL value of one JSON value. Containers stay text until they are asked for more than a member.
func toValue(raw []byte) ref.Val {
	text := bytes.Trim(raw, " \n\t\r")
	if len(text) == 0 {
		return types.NullValue
	}
	switch text[0] {
	case '{':
		return &object{raw: raw}
	case '[':
		return &array{raw: raw}
	case '"':
		s, err := unquote(text)
		if err != nil {
			return types.WrapErr(err)
		}
		return types.String(s)
	}
	switch string(text) {
	case "true":
		return types.True
	case "false":
		return types.False
	case "null":
		return types.NullValue
	}
	return number(text)
}

// object is a JSON object as a CEL map. The first lookups scan its text; from then on, and for anything else,
// its members (not what is in them) are kept in a map, so that no expression is quadratic in the payload.
type object struct {
	raw     []byte
	lookups int
	members traits.Mapper
}

const scannedLookups = 4

func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok || o.members != nil || o.lookups == scannedLookups {
		return o.full().Find(key)
	}
	o.lookups++
	found, err := findMember(o.raw, string(name))
	if err != nil {
		return types.WrapErr(err), false
	}
	if found == nil {
		return nil, false
	}
	return toValue(found), true
}

func (o *object) full() traits.Mapper {
	if o.members != nil {
		return o.members
	}
	members := make(map[string]any)
	err := eachMember(o.raw, func(key, value []byte) {
		// A key that cannot be read is of a document that the validator refuses; it is no key that anyone asks for.
		if name, err := unquote(key); err == nil {
			members[name] = toValue(value)
		}
	})
	if err != nil {
		clear(members)
	}
	o.members = types.NewStringInterfaceMap(types.DefaultTypeAdapter, members)
	return o.members
}

func (o *object) Contains(key ref.Val) ref.Val { return o.full().Contains(key) }
func (o *object) Get(key ref.Val) ref.Val      { return o.full().Get(key) }
func (o *object) Iterator() traits.Iterator    { return o.full().Iterator() }
func (o *object) Size() ref.Val                { return o.full().Size() }
func (o *object) Equal(other ref.Val) ref.Val  { return equal(o, other) }
func (o *object) Type() ref.Type               { return types.MapType }
func (o *object) Value() any                   { return o.full().Value() }

func (o *object) ConvertToType(t ref.Type) ref.Val {
	if t == types.MapType {
		return o
	}
	return o.full().ConvertToType(t)
}

func (o *object) ConvertToNative(t reflect.Type) (any, error) { return toNative(o, o.raw, t) }

// array is a JSON array as a CEL list.
type array struct {
	raw      []byte
	elements traits.Lister
}

func (a *array) full() traits.Lister {
	if a.elements != nil {
		return a.elements
	}
	elements := []ref.Val{}
	err := eachElement(a.raw, func(value []byte) bool {
		elements = append(elements, toValue(value))
		return true
	})
	if err != nil {
		elements = nil
	}
	a.elements = types.NewRefValList(types.DefaultTypeAdapter, elements)
	return a.elements
}

func (a *array) Get(index ref.Val) ref.Val      { return a.full().Get(index) }
func (a *array) Add(other ref.Val) ref.Val      { return a.full().Add(other) }
func (a *array) Contains(value ref.Val) ref.Val { return contains(a, value) }
func (a *array) Iterator() traits.Iterator      { return a.full().Iterator() }
func (a *array) Size() ref.Val                  { return a.full().Size() }
func (a *array) Equal(other ref.Val) ref.Val    { return equal(a, other) }
func (a *array) Type() ref.Type                 { return types.ListType }
func (a *array) Value() any                     { return a.full().Value() }

func (a *array) ConvertToType(t ref.Type) ref.Val {
	if t == types.ListType {
		return a
	}
	return a.full().ConvertToType(t)
}

func (a *array) ConvertToNative(t reflect.Type) (any, error) { return toNative(a, a.raw, t) }

// toNative is what CEL's own libraries ask of a container: join wants []string.
func toNative(v ref.Val, raw []byte, t reflect.Type) (any, error) {
	if reflect.TypeOf(v).AssignableTo(t) {
		return v, nil
	}
	target := reflect.New(t)
	if err := json.Unmarshal(raw, target.Interface()); err != nil {
		return nil, fmt.Errorf("cannot convert to %v: %w", t, err)
	}
	return target.Elem().Interface(), nil
}
