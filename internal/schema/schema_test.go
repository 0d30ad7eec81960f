package schema

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	s, err := Compile([]byte(`{
		"type": "object", "required": ["approver"], "additionalProperties": false,
		"properties": {"approver": {"$ref": "#/$defs/name"}, "amount": {"type": "integer", "maximum": 12345678901234567890}, "mail": {"format": "email"}, "tags": {"items": {"type": "string"}}},
		"$defs": {"name": {"type": "string", "minLength": 1}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for doc, want := range map[string]string{
		`{"approver": "ann", "amount": 12345678901234567890, "mail": "a@b.example"}`: "",
		`{"approver": "ann", "amount": 12345678901234567891}`:                        "/amount: maximum: got ",
		`{}`:                                  "missing property 'approver'",
		`[]`:                                  "got array, want object",
		`{"approver": "", "x": 1}`:            "minLength",
		`{"approver": "ann", "mail": "here"}`: "'here' is not valid email",
		`{"approver": "ann", "tags": [1, 2, 3, 4, 5, 6, 7, 8]}`: "and 3 more",
	} {
		reason, err := s.Check([]byte(doc))
		if err != nil || want == "" && reason != "" || !strings.Contains(reason, want) {
			t.Errorf("%s: %q, %v, want %q", doc, reason, err, want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{`:                                     "is not JSON",
		`{"type": "objet"}`:                     "is no JSON Schema: ",
		`{"properties": []}`:                    "is no JSON Schema: /properties: got array, want object",
		`{"$ref": "other.json"}`:                "it can refer to its own $defs alone",
		`{"$ref": "http://127.0.0.1:1/s.json"}`: "it can refer to its own $defs alone",
		`{"$ref": "#/$defs/none"}`:              "none",
		`{"pattern": "("}`:                      "is no JSON Schema",
	} {
		if _, err := Compile([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
}
