package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/ohler55/ojg/jp"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/ident"
)

// output is how a command writes its answer.
type output struct {
	json      bool // as a document, and not as a table
	as        string
	noHeaders bool
	path      jp.Expr
}

const jsonPathPrefix = "jsonpath="

// formats are the values of --output, as completion has them.
var formats = []string{"table", "json", "yaml", jsonPathPrefix}

// addOutput adds the flags.
func (o *output) addOutput(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.json, "json", false, "write JSON, as -o json does")
	f.StringVarP(&o.as, "output", "o", "table", "table, json, yaml, or jsonpath=PATH: what a JSONPath selects, one in a line")
	f.BoolVar(&o.noHeaders, "no-headers", false, "leave out the header of a table")
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
	_ = c.RegisterFlagCompletionFunc("output", complete) // fails for an unknown flag only
	c.PreRunE = func(c *cobra.Command, _ []string) error { return o.readOutput(c) }
}

// readOutput checks the flags.
func (o *output) readOutput(c *cobra.Command) (err error) {
	path, isPath := strings.CutPrefix(o.as, jsonPathPrefix)
	switch {
	case o.json && c.Flags().Changed("output") && o.as != "json":
		return usage(c, errors.New("--json and --output: want one of them"))
	case o.json:
		o.as = "json"
	case isPath:
		if strings.HasPrefix(path, "{") && strings.HasSuffix(path, "}") { // as kubectl has them
			path = path[1 : len(path)-1]
		}
		if o.path, err = jp.ParseString(path); err != nil || len(o.path) == 0 {
			return usage(c, fmt.Errorf("--output %s: is no JSONPath, as jsonpath=$.items[*].id (%w)", o.as, err))
		}
	case o.as != "table" && o.as != "json" && o.as != "yaml":
		return usage(c, fmt.Errorf("--output %q: want table, json, yaml or jsonpath=PATH", o.as))
	}
	o.json = o.as != "table"
	return nil
}

// document writes an answer as --output says; one that has no table is JSON.
func (o *output) document(w io.Writer, v any) error {
	switch {
	case o.path != nil:
		return o.selected(w, v)
	case o.as == "yaml":
		text, err := ident.Encode(v)
		if err == nil {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	default:
		return writeJSON(w, v)
	}
}

// another writes one of several documents that come one after another.
func (o *output) another(w io.Writer, v any) error {
	switch {
	case o.path != nil:
		return o.selected(w, v)
	case o.as == "yaml":
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return o.document(w, v)
	default:
		return json.NewEncoder(w).Encode(v)
	}
}

// selected writes what the path selects: strings as they are, all else as JSON.
func (o *output) selected(w io.Writer, v any) error {
	text, err := ident.Encode(v)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return err
	}
	for _, found := range o.path.Get(numbers(tree)) {
		line, isText := found.(string)
		if !isText {
			text, err := ident.Encode(found)
			if err != nil {
				return err
			}
			line = string(text)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// numbers makes numbers of a tree what a path can compare. An integer that has no room stays as it is written.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, item := range v {
			v[name] = numbers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = numbers(item)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil && math.Trunc(f) != f {
			return f
		}
	}
	return v
}

// print writes a table.
func (o *output) print(w io.Writer, t *table) error {
	if o.noHeaders {
		t.header = nil
	}
	return t.write(w)
}
