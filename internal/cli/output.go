package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// writeJSON writes a document for programs and people.
func writeJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(text))
	return err
}

// table is rows under a header, or pairs of a name and a value without one.
type table struct {
	header []string
	rows   [][]string
}

func newTable(header ...string) *table { return &table{header: header} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// pair adds a name and its value, unless there is none.
func (t *table) pair(name, value string) {
	if value != "" {
		t.add(name, value)
	}
}

func (t *table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	if len(t.header) > 0 {
		fmt.Fprintln(w, strings.Join(t.header, "\t"))
	}
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = w.Flush() // a builder takes all
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

func (t *table) write(w io.Writer) error {
	_, err := io.WriteString(w, t.String())
	return err
}

// oneLine keeps what comes from outside from breaking a table, or steering a terminal.
func oneLine(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// short cuts a text to fit a column.
func short(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func clockOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}

func text[T any](p *T) string {
	if p == nil {
		return ""
	}
	return fmt.Sprint(*p)
}

// document is JSON in one line; null is "".
func document(raw json.RawMessage) string {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil || line.String() == "null" {
		return ""
	}
	return line.String()
}
