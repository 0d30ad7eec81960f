package jsonpath

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Error says what is wrong, and where: columns count characters from 1.
type Error struct {
	Column int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Reason) }

type kind int

const (
	end    kind = iota
	mark        // punctuation and operators
	word        // an identifier or a keyword
	quoted      // text in quotes
	number
	variable
)

type token struct {
	kind kind
	text string
	at   int // byte offset
}

// operators of more than one character, the longest first.
var operators = []string{"**", "&&", "||", "==", "!=", "<>", "<=", ">="}

const (
	special = "?%$.[]{}()|&!=<>@#,*:-+/"
	blank   = " \t\n\r\f"
)

// scan takes a text apart. It panics with an [*Error].
func scan(src string) (tokens []token) {
	for i := 0; i < len(src); {
		rest := src[i:]
		switch c := src[i]; {
		case strings.IndexByte(blank, c) >= 0:
			i++
			continue
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest, "*/")
			if n < 0 {
				fail(src, i, "the comment does not end")
			}
			i += n + 2
			continue
		case c == '"':
			tokens = append(tokens, token{quoted, rest[:quote(src, i)], i})
		case c == '$' && len(rest) > 1 && strings.IndexByte(special+blank, rest[1]) < 0:
			n := 1
			if rest[1] == '"' {
				n += quote(src, i+1)
			} else {
				n += untilSpecial(rest[1:])
			}
			tokens = append(tokens, token{variable, rest[:n], i})
		case c >= '0' && c <= '9', c == '.' && len(rest) > 1 && digit(rest[1]):
			tokens = append(tokens, token{number, rest[:numeral(src, i)], i})
		case strings.IndexByte(special, c) >= 0:
			t := token{mark, rest[:1], i}
			for _, op := range operators {
				if strings.HasPrefix(rest, op) {
					t.text = op
					break
				}
			}
			tokens = append(tokens, t)
		default:
			tokens = append(tokens, token{word, rest[:untilSpecial(rest)], i})
		}
		i += len(tokens[len(tokens)-1].text)
	}
	return append(tokens, token{end, "", len(src)})
}

func untilSpecial(s string) int {
	if n := strings.IndexAny(s, special+blank+`"`); n >= 0 {
		return n
	}
	return len(s)
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// quote is how long the text in quotes is that begins at i.
func quote(src string, i int) int {
	for k := i + 1; k < len(src); k++ {
		switch src[k] {
		case '\\':
			if k++; !escaped.MatchString(src[k:]) {
				fail(src, k-1, "is no escape: want two digits after \\x, and four after \\u")
			}
		case '"':
			return k + 1 - i
		}
	}
	fail(src, i, `the text in quotes does not end: want another "`)
	return 0
}

// escaped is what comes after a backslash.
var escaped = regexp.MustCompile(`^(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}|[^xu]|$)`)

// numeral is how long the number is that begins at i.
func numeral(src string, i int) int {
	k := i
	digits := func() {
		for k < len(src) && (digit(src[k]) || src[k] == '_' && k > i && digit(src[k-1])) {
			k++
		}
	}
	digits()
	if k < len(src) && src[k] == '.' && !(k+1 < len(src) && strings.IndexByte("*", src[k+1]) >= 0) {
		k++
		digits()
	}
	if k+1 < len(src) && (src[k] == 'e' || src[k] == 'E') && (digit(src[k+1]) || k+2 < len(src) && strings.IndexByte("+-", src[k+1]) >= 0 && digit(src[k+2])) {
		k += 2
		digits()
	}
	whole := src[i:k]
	if after := strings.IndexAny(src[k:]+" ", special+blank+`"`); after > 0 && !based(src[i:k+after]) {
		fail(src, i, fmt.Sprintf("%q is no number", src[i:k+after]))
	} else if after > 0 {
		return k + after - i
	}
	if len(whole) > 1 && whole[0] == '0' && digit(whole[1]) || strings.HasSuffix(whole, "_") {
		fail(src, i, fmt.Sprintf("%q is no number", whole))
	}
	return len(whole)
}

// based says whether a numeral is of another base than ten.
func based(s string) bool {
	bases := map[string]string{"0x": "0123456789abcdef_", "0o": "01234567_", "0b": "01_"}
	if len(s) < 3 {
		return false
	}
	digits, ok := bases[strings.ToLower(s[:2])]
	return ok && strings.Trim(strings.ToLower(s[2:]), digits) == "" && !strings.HasSuffix(s, "_")
}

func fail(src string, at int, reason string) {
	panic(&Error{1 + utf8.RuneCountInString(src[:at]), reason})
}
