package expr

import (
	"bytes"
	"encoding/json"
	"errors"
)

// This file walks JSON text without decoding it. The text has passed the validator, so the walk only checks what it
// needs in order not to leave the slice or spin.

var errNotJSON = errors.New("the payload is not valid JSON")

// skipSpace returns the first index from i on that is no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, or -1.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// skipValue returns the index after the value that begins at i, or -1.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipContainer(b, i)
	}
	start := i
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			if i == start {
				return -1
			}
			return i
		}
	}
	return i
}

func skipContainer(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// eachMember calls fn with the key, still in its quotes, and the value of every member of the object raw.
func eachMember(raw []byte, fn func(key, value []byte)) error {
	i := skipSpace(raw, skipSpace(raw, 0)+1)
	if i < len(raw) && raw[i] == '}' {
		return nil
	}
	for {
		if i >= len(raw) || raw[i] != '"' {
			return errNotJSON
		}
		end := skipString(raw, i)
		if end < 0 {
			return errNotJSON
		}
		key := raw[i:end]
		i = skipSpace(raw, end)
		if i >= len(raw) || raw[i] != ':' {
			return errNotJSON
		}
		i = skipSpace(raw, i+1)
		if end = skipValue(raw, i); end < 0 {
			return errNotJSON
		}
		fn(key, raw[i:end])
		i = skipSpace(raw, end)
		if i >= len(raw) || raw[i] != ',' && raw[i] != '}' {
			return errNotJSON
		}
		if raw[i] == '}' {
			return nil
		}
		i = skipSpace(raw, i+1)
	}
}

// eachElement calls fn with every element of the array raw, until fn returns false.
func eachElement(raw []byte, fn func(value []byte) bool) error {
	i := skipSpace(raw, skipSpace(raw, 0)+1)
	if i < len(raw) && raw[i] == ']' {
		return nil
	}
	for {
		end := skipValue(raw, i)
		if end < 0 {
			return errNotJSON
		}
		if !fn(raw[i:end]) {
			return nil
		}
		i = skipSpace(raw, end)
		if i >= len(raw) || raw[i] != ',' && raw[i] != ']' {
			return errNotJSON
		}
		if raw[i] == ']' {
			return nil
		}
		i = skipSpace(raw, i+1)
	}
}

// findMember returns the value of the object's member of that name, nil when it has none. Of several the last counts, as in jsonb.
func findMember(raw []byte, name string) ([]byte, error) {
	var found []byte
	err := eachMember(raw, func(key, value []byte) {
		if keyIs(key, name) {
			found = value
		}
	})
	return found, err
}

// findElement returns the array's element at index, nil when it has none.
func findElement(raw []byte, index int64) ([]byte, error) {
	var found []byte
	err := eachElement(raw, func(value []byte) bool {
		if index == 0 {
			found = value
		}
		index--
		return found == nil
	})
	return found, err
}

func keyIs(key []byte, name string) bool {
	inner := key[1 : len(key)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	s, err := unquote(key)
	return err == nil && s == name
}

func unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[len(raw)-1] != '"' {
		return "", errNotJSON
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", errNotJSON
	}
	return s, nil
}
