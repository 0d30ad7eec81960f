// Package schema checks documents against JSON Schemas (drafts 4 to 2020-12; without $schema the latest). It alone imports the library
// that does. Formats are checked, and a schema refers to nothing outside of itself.
package schema

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a compiled schema. It is immutable and safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// location is what the library calls the only document.
const location = "schema:///schema.json"

// Compile reads a schema, which is JSON.
func Compile(doc []byte) (*Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothingElse{})
	c.AssertFormat()
	if err := c.AddResource(location, parsed); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(location)
	var wrong *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &wrong) && errors.As(wrong.Err, &invalid):
		return nil, errors.New("is no JSON Schema: " + reasons(invalid))
	case err != nil:
		return nil, fmt.Errorf("is no JSON Schema: %w", err)
	}
	return &Schema{compiled}, nil
}

// nothingElse keeps schemas from reading files and asking servers.
type nothingElse struct{}

func (nothingElse) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not in the schema: it can refer to its own $defs alone", url)
}

// Check says what is wrong with a JSON document, "" for nothing.
func (s *Schema) Check(doc []byte) (reason string, err error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return "", err
	}
	err = s.compiled.Validate(parsed)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return reasons(invalid), nil
	}
	return "", err
}

// most is how many mistakes are told at once.
const most = 5

// reasons are what is wrong, each with its place.
func reasons(err *jsonschema.ValidationError) string {
	all := leaves(*err.DetailedOutput())
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

func leaves(unit jsonschema.OutputUnit) (all []string) {
	if unit.Error != nil {
		return []string{strings.TrimPrefix(unit.InstanceLocation+": ", ": ") + unit.Error.String()}
	}
	for _, below := range unit.Errors {
		all = append(all, leaves(below)...)
	}
	return all
}
