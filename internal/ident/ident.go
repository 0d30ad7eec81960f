// Package ident is the validator of keys, names and JSON documents, the same one at every entry of the system:
// routes, HTTP, NATS, the Go API, SQL, the command line and rendered templates.
package ident

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxKey is the most characters a key may have.
	MaxKey = 512
	// MaxName is the most characters a name may have.
	MaxName = 128
	// MaxJSON is the most bytes that a state, a result, a published value or a payload may have.
	MaxJSON = 1 << 20
)

// Error says which field is wrong, and why in words that tell what to do.
type Error struct {
	Field  string
	Reason string
}

func (e *Error) Error() string { return e.Field + ": " + e.Reason }

// TooLong says whether a document is wrong by its size alone.
func (e *Error) TooLong() bool { return strings.HasPrefix(e.Reason, reasonLong) }

// Key checks a correlation, dedup, event, unique or partition key: 1 to [MaxKey] characters of valid UTF-8, none below 0x20.
// The error is an [*Error].
func Key(field, s string) error {
	if s == "" {
		return &Error{field, "is empty: a key has 1 to 512 characters"}
	}
	ascii := true
	for i := range len(s) {
		if s[i] < 0x20 {
			return &Error{field, fmt.Sprintf("has the control character 0x%02x at byte %d: remove it", s[i], i)}
		}
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	n := len(s)
	if !ascii {
		if !utf8.ValidString(s) {
			return &Error{field, "is not valid UTF-8: encode the key as UTF-8"}
		}
		n = utf8.RuneCountInString(s)
	}
	if n > MaxKey {
		return &Error{field, fmt.Sprintf("has %d characters: a key has at most 512", n)}
	}
	return nil
}

// EventKey checks the key of a trigger: a [Key] that is not the name of a request on triggers. The error is an [*Error].
func EventKey(field, s string) error {
	switch s {
	case "stats", "purge", "prefix":
		return &Error{field, fmt.Sprintf("%q is reserved: it is the name of a request; put something before it, as in order:%s", s, s)}
	}
	return Key(field, s)
}

// Name checks the name of a machine, step, signal, update, queue or project: [A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}.
// The error is an [*Error].
func Name(field, s string) error { return name(field, s, true) }

// Token checks a name that is one token of a subject, so it has no '.': a machine, queue, project or route.
// The error is an [*Error].
func Token(field, s string) error { return name(field, s, false) }

// OutboxQueue is what programs poke one another with when the outbox has something new. No queue of instances has this name.
const OutboxQueue = "_outbox"

// WebhooksQueue is the same for webhooks that are to be sent.
const WebhooksQueue = "_webhooks"

// JobsQueue is the same for jobs.
const JobsQueue = "_jobs"

// Queue checks the name of a queue: a [Token] that is none of [OutboxQueue], [WebhooksQueue] and [JobsQueue]. The error is an [*Error].
func Queue(field, s string) error {
	if s == OutboxQueue || s == WebhooksQueue || s == JobsQueue {
		return &Error{field, quote(s) + " is pointsman's own: choose another name"}
	}
	return Token(field, s)
}

func name(field, s string, dots bool) error {
	allowed := "letters, digits and _ - : ."
	if !dots {
		allowed = "letters, digits and _ - :"
	}
	if s == "" {
		return &Error{field, "is empty: want 1 to 128 of " + allowed}
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_':
		case c == '-' || c == ':' || c == '.' && dots:
			if i == 0 {
				return &Error{field, fmt.Sprintf("%s begins with %q: begin with a letter, a digit or _", quote(s), c)}
			}
		case c == '.':
			return &Error{field, quote(s) + " has a '.', which this name cannot have, as it is one token of a subject: use " + allowed}
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return &Error{field, fmt.Sprintf("%s has %q at byte %d: use %s", quote(s), r, i, allowed)}
		}
	}
	if len(s) > MaxName {
		return &Error{field, fmt.Sprintf("has %d characters: a name has at most 128", len(s))}
	}
	return nil
}

// quote shortens s, which comes from outside, for a message.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:most])
}
