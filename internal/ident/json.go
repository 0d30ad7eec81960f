package ident

import (
	"fmt"
	"unicode/utf8"
)

// Limits on what is inside a JSON document. Postgres would take more, but a few bytes such as 1e100000 must not
// become a hundred thousand digits in every index, comparison and log line.
const (
	maxDepth    = 1000
	maxDigits   = 1000
	maxExponent = 1000
)

// Why a document is refused. The field's name stands before, the byte after.
const (
	reasonEmpty     = "is empty: send a JSON value"
	reasonLong      = "is too long"
	reasonSyntax    = "is not JSON"
	reasonUTF8      = "is not valid UTF-8"
	reasonNull      = `has \u0000, which Postgres cannot hold: remove it`
	reasonSurrogate = `has half of a surrogate pair, which is no character: escape both halves, as in \ud83d\ude00`
	reasonDigits    = "has a number of more than 1000 digits: send it as a string"
	reasonExponent  = "has a number with an exponent beyond 1000: send it as a string"
	reasonExpanded  = "has exponents that write out to more than 1 MiB of digits: send these numbers as strings"
	reasonDepth     = "nests more than 1000 deep: flatten it"
)

// JSON checks that b is one JSON value (RFC 8259) that Postgres' jsonb can hold, of at most max bytes:
// valid UTF-8, no \u0000, no lone surrogate, no number beyond 1000 digits or an exponent of 1000, at most 1000 deep,
// and exponents that together do not make a document of another order of size when Postgres writes them out.
// The error is an [*Error]. It allocates nothing when b is good.
func JSON(field string, b []byte, max int) error {
	if len(b) > max {
		return &Error{field, fmt.Sprintf("%s: %d bytes, at most %d are allowed", reasonLong, len(b), max)}
	}
	s := scanner{b: b}
	reason := s.document()
	switch reason {
	case "":
		return nil
	case reasonEmpty:
		return &Error{field, reason}
	case reasonSyntax:
		return &Error{field, fmt.Sprintf("%s at byte %d: %s", reason, s.i, s.found())}
	}
	return &Error{field, fmt.Sprintf("%s (byte %d)", reason, s.i)}
}

// scanner goes once over b. Its methods return a reason, "" when all is well, and leave i where they stopped.
type scanner struct {
	b     []byte
	i     int
	depth int
	zeros int // that jsonb writes out where the document has exponents
	// One bit a level, set for an object. A bitmap, as a stack of bytes would be allocated or cost a kilobyte to clear.
	objects [maxDepth/64 + 1]uint64
}

func (s *scanner) document() string {
	s.space()
	if s.i == len(s.b) {
		return reasonEmpty
	}
	for {
		opened, reason := s.value()
		if reason != "" {
			return reason
		}
		if opened {
			continue
		}
		if reason = s.after(); reason != "" {
			return reason
		}
		if s.depth == 0 {
			break
		}
	}
	if s.i < len(s.b) {
		return reasonSyntax
	}
	return ""
}

// value reads a scalar or an empty container, or opens a container up to its first value.
func (s *scanner) value() (opened bool, reason string) {
	switch s.peek() {
	case '{':
		return s.open(true)
	case '[':
		return s.open(false)
	case '"':
		return false, s.str()
	case 't':
		return false, s.literal("true")
	case 'f':
		return false, s.literal("false")
	case 'n':
		return false, s.literal("null")
	}
	return false, s.number()
}

func (s *scanner) open(object bool) (opened bool, reason string) {
	s.i++
	s.space()
	closing := byte(']')
	if object {
		closing = '}'
	}
	if s.depth == maxDepth {
		return false, reasonDepth
	}
	if s.peek() == closing {
		s.i++
		return false, ""
	}
	if object {
		s.objects[s.depth/64] |= 1 << (s.depth % 64)
	} else {
		s.objects[s.depth/64] &^= 1 << (s.depth % 64)
	}
	s.depth++
	if object {
		return true, s.key()
	}
	return true, ""
}

// after reads what follows a value: closings, then a comma and, in an object, the next key.
func (s *scanner) after() string {
	for {
		s.space()
		if s.depth == 0 {
			return ""
		}
		level := s.depth - 1
		object := s.objects[level/64]&(1<<(level%64)) != 0
		switch c := s.peek(); {
		case c == ',':
			s.i++
			s.space()
			if object {
				return s.key()
			}
			return ""
		case c == '}' && object, c == ']' && !object:
			s.i++
			s.depth--
		default:
			return reasonSyntax
		}
	}
}

func (s *scanner) key() string {
	if s.peek() != '"' {
		return reasonSyntax
	}
	if reason := s.str(); reason != "" {
		return reason
	}
	s.space()
	if s.peek() != ':' {
		return reasonSyntax
	}
	s.i++
	s.space()
	return ""
}

func (s *scanner) str() string {
	s.i++
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return ""
		case c == '\\':
			if reason := s.escape(); reason != "" {
				return reason
			}
		case c < 0x20:
			return reasonSyntax
		case c < utf8.RuneSelf:
			s.i++
		default:
			r, size := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && size == 1 {
				return reasonUTF8
			}
			s.i += size
		}
	}
	return reasonSyntax
}

func (s *scanner) escape() string {
	start := s.i
	s.i++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return ""
	case 'u':
	default:
		return reasonSyntax
	}
	unit, ok := s.hex()
	if !ok {
		return reasonSyntax
	}
	reason := ""
	switch {
	case unit == 0:
		reason = reasonNull
	case 0xdc00 <= unit && unit <= 0xdfff:
		reason = reasonSurrogate
	case 0xd800 <= unit && unit <= 0xdbff:
		reason = s.lowSurrogate()
	}
	if reason != "" {
		s.i = start
	}
	return reason
}

func (s *scanner) lowSurrogate() string {
	if s.peek() != '\\' {
		return reasonSurrogate
	}
	s.i++
	if s.peek() != 'u' {
		return reasonSurrogate
	}
	if unit, ok := s.hex(); !ok || unit < 0xdc00 || unit > 0xdfff {
		return reasonSurrogate
	}
	return ""
}

// hex reads the u and four digits.
func (s *scanner) hex() (unit uint32, ok bool) {
	s.i++
	for range 4 {
		c := s.peek()
		switch {
		case '0' <= c && c <= '9':
			unit = unit<<4 | uint32(c-'0')
		case 'a' <= c && c <= 'f':
			unit = unit<<4 | uint32(c-'a'+10)
		case 'A' <= c && c <= 'F':
			unit = unit<<4 | uint32(c-'A'+10)
		default:
			return 0, false
		}
		s.i++
	}
	return unit, true
}

func (s *scanner) number() string {
	start := s.i
	if s.peek() == '-' {
		s.i++
	}
	digits := 1
	if s.peek() == '0' {
		s.i++
	} else if digits = s.digits(); digits == 0 {
		return reasonSyntax
	}
	if s.peek() == '.' {
		s.i++
		fraction := s.digits()
		if fraction == 0 {
			return reasonSyntax
		}
		digits += fraction
	}
	if digits > maxDigits {
		s.i = start
		return reasonDigits
	}
	if c := s.peek(); c != 'e' && c != 'E' {
		return ""
	}
	s.i++
	if c := s.peek(); c == '+' || c == '-' {
		s.i++
	}
	return s.exponent(start)
}

func (s *scanner) exponent(start int) string {
	from := s.i
	if s.digits() == 0 {
		return reasonSyntax
	}
	n := 0
	for _, c := range s.b[from:s.i] {
		if n = n*10 + int(c-'0'); n > maxExponent {
			s.i = start
			return reasonExponent
		}
	}
	if s.zeros += n; s.zeros > MaxJSON {
		s.i = start
		return reasonExpanded
	}
	return ""
}

func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - from
}

func (s *scanner) literal(word string) string {
	for i := range len(word) {
		if s.peek() != word[i] {
			return reasonSyntax
		}
		s.i++
	}
	return ""
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte, 0 at the end: a byte that stands for nothing in JSON.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) found() string {
	if s.i >= len(s.b) {
		return "it ends too early"
	}
	r, size := utf8.DecodeRune(s.b[s.i:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("unexpected byte 0x%02x", s.b[s.i])
	}
	return fmt.Sprintf("unexpected %q", r)
}
