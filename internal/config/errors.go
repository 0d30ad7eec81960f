package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong, and where.
type Error struct {
	File   string
	Line   int // from 1; 0 for what no line of the file says
	Column int
	Field  string // "routes[0].signal"; "" for the file as such
	Reason string // what is wrong, and what is allowed
}

func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Reason
}

// Errors is all that is wrong, in the order of the file. It has one line for each.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// err is e as an error: nil when there is nothing wrong.
func (e Errors) err() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}

type position struct{ line, column int }

// Errorf says that the field is wrong, at its place in the file, or at that of the closest field around it that the file has.
// It is for those who know more than this package: that a flow does not compile, that a secret cannot be decoded.
func (c *Config) Errorf(field, format string, args ...any) error {
	e := Error{File: c.file, Field: field, Reason: fmt.Sprintf(format, args...)}
	if e.File == "" {
		e.File = "configuration"
	}
	for path := field; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if at, ok := c.where[path]; ok {
			e.Line, e.Column = at.line, at.column
			break
		}
	}
	return Errors{e}
}

// suggest returns the one of names that s was probably meant to be, "" when none is near.
func suggest(s string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if d := distance(s, name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
