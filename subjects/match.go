package subjects

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Tokens of a subject: "a.b" has two. The empty subject has none.
func Tokens(subject string) []string {
	if subject == "" {
		return nil
	}
	return strings.Split(subject, ".")
}

// ValidSubject says whether a message can be published to s: nil, or what is wrong with it.
func ValidSubject(s string) error {
	if err := validTokens(s, false); err != nil {
		return fmt.Errorf("subject %q: %w", s, err)
	}
	return nil
}

// ValidFilter says whether s is a subject in which '*' may stand for one token and a last '>' for one or more: nil, or what is wrong with it.
func ValidFilter(s string) error {
	if err := validTokens(s, true); err != nil {
		return fmt.Errorf("subject %q: %w", s, err)
	}
	return nil
}

func validTokens(s string, wildcards bool) error {
	if s == "" {
		return errors.New("is empty")
	}
	if !utf8.ValidString(s) {
		return errors.New("is not valid UTF-8")
	}
	open := false // a '>' was seen, nothing may follow
	for token := range strings.SplitSeq(s, ".") {
		switch {
		case open:
			return errors.New("'>' must be the last token")
		case token == "":
			return errors.New("has an empty token: no dot at either end, no two in a row")
		case wildcards && token == "*":
		case wildcards && token == ">":
			open = true
		default:
			if err := validToken(token, wildcards); err != nil {
				return err
			}
		}
	}
	return nil
}

func validToken(token string, wildcards bool) error {
	for i := range len(token) {
		switch c := token[i]; {
		case c <= ' ' || c == 0x7f:
			return errors.New("has a space or a control character")
		case c == '*' || c == '>':
			if wildcards {
				return fmt.Errorf("token %q: a wildcard is a token of its own", token)
			}
			return errors.New("has a wildcard, and a message needs one exact subject")
		}
	}
	return nil
}

// Match says whether filter selects subject. Both are taken as valid.
func Match(filter, subject string) bool {
	for {
		f, filterRest, filterMore := strings.Cut(filter, ".")
		s, subjectRest, subjectMore := strings.Cut(subject, ".")
		if f == ">" {
			return true
		}
		if f != "*" && f != s || filterMore != subjectMore {
			return false
		}
		if !filterMore {
			return true
		}
		filter, subject = filterRest, subjectRest
	}
}

// Overlap says whether some subject is selected by both filters. Both are taken as valid.
func Overlap(a, b string) bool {
	for {
		s, aRest, aMore := strings.Cut(a, ".")
		t, bRest, bMore := strings.Cut(b, ".")
		if s == ">" || t == ">" {
			return true
		}
		if s != "*" && t != "*" && s != t || aMore != bMore {
			return false
		}
		if !aMore {
			return true
		}
		a, b = aRest, bRest
	}
}
