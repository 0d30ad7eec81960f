package expr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/pointsman/pointsman/internal/ident"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// kind names what v is, for an error.
func kind(v ref.Val) string {
	switch v.(type) {
	case types.Null:
		return "null"
	case types.String:
		return "a string"
	case types.Bool:
		return "a boolean"
	case number, types.Int, types.Uint, types.Double:
		return "a number"
	case traits.Lister:
		return "a list"
	case traits.Mapper:
		return "an object"
	case *types.Optional:
		return "an optional value"
	}
	return "a " + v.Type().TypeName()
}

// toString renders a scalar as text, or says why it has none.
func toString(v ref.Val) (s, reason string) {
	switch v := v.(type) {
	case types.String:
		return string(v), ""
	case number:
		return string(v), ""
	case types.Int:
		return strconv.FormatInt(int64(v), 10), ""
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), ""
	case types.Double:
		if doc, reason := appendDouble(nil, float64(v)); reason == "" {
			return string(doc), ""
		}
	case types.Bool:
		return strconv.FormatBool(bool(v)), ""
	case types.Timestamp:
		return v.Time.UTC().Format(time.RFC3339Nano), ""
	case types.Duration:
		return v.Duration.String(), ""
	case types.Bytes:
		if utf8.Valid(v) {
			return string(v), ""
		}
		return "", "is bytes that are not UTF-8, and text is needed here"
	case *types.Optional:
		if v.HasValue() {
			return toString(v.GetValue())
		}
		return "", "is absent: say what else with orValue()"
	}
	return "", "is " + kind(v) + ", and a string, number or boolean is needed here"
}

// original returns the text of the payload that a container is.
func original(v ref.Val) []byte {
	switch v := v.(type) {
	case *object:
		return bytes.Trim(v.raw, " \n\t\r")
	case *array:
		return bytes.Trim(v.raw, " \n\t\r")
	}
	return nil
}

// appendJSON appends v as JSON, or says why it has no such form.
func appendJSON(dst []byte, v ref.Val) (doc []byte, reason string) {
	if raw := original(v); raw != nil {
		return append(dst, raw...), ""
	}
	switch v := v.(type) {
	case types.Null:
		return append(dst, "null"...), ""
	case number:
		return append(dst, v...), ""
	case types.Double:
		return appendDouble(dst, float64(v))
	case types.Int, types.Uint, types.Bool:
		s, _ := toString(v)
		return append(dst, s...), ""
	case types.Bytes:
		return appendString(dst, base64.StdEncoding.EncodeToString(v))
	case types.String, types.Timestamp, types.Duration:
		s, _ := toString(v)
		return appendString(dst, s)
	case traits.Lister:
		return appendList(dst, v)
	case traits.Mapper:
		return appendMap(dst, v)
	case *types.Optional:
		if v.HasValue() {
			return appendJSON(dst, v.GetValue())
		}
		return append(dst, "null"...), ""
	}
	return dst, "is " + kind(v) + ", which has no JSON form"
}

func appendDouble(dst []byte, f float64) ([]byte, string) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, "is not a finite number"
	}
	doc, err := json.Marshal(f)
	if err != nil {
		return dst, err.Error()
	}
	return append(dst, doc...), ""
}

func appendString(dst []byte, s string) ([]byte, string) {
	if !utf8.ValidString(s) {
		return dst, "is not valid UTF-8"
	}
	doc, err := ident.Encode(s)
	if err != nil {
		return dst, err.Error()
	}
	return append(dst, doc...), ""
}

func appendList(dst []byte, list traits.Lister) ([]byte, string) {
	dst = append(dst, '[')
	for i, it := 0, list.Iterator(); it.HasNext() == types.True; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		var reason string
		if dst, reason = appendJSON(dst, it.Next()); reason != "" {
			return dst, "element " + strconv.Itoa(i) + " " + reason
		}
	}
	return append(dst, ']'), ""
}

// appendMap writes the members in the order of their names, so that the same value is the same text.
func appendMap(dst []byte, m traits.Mapper) ([]byte, string) {
	values := make(map[string]ref.Val)
	names := []string{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, reason := toString(key)
		if reason != "" {
			return dst, "a key " + reason
		}
		if _, double := values[name]; double {
			return dst, "the key " + strconv.Quote(name) + " is there twice"
		}
		names = append(names, name)
		values[name] = m.Get(key)
	}
	slices.Sort(names)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		var reason string
		if dst, reason = appendString(dst, name); reason != "" {
			return dst, "a key " + reason
		}
		if dst, reason = appendJSON(append(dst, ':'), values[name]); reason != "" {
			return dst, "member " + strconv.Quote(name) + " " + reason
		}
	}
	return append(dst, '}'), ""
}
