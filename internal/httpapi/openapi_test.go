package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	_ "github.com/oapi-codegen/runtime" // of what is generated
)

// A client that is generated of the OpenAPI document compiles, and works.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	s := newStub(t)
	b := &bundle{T: t, url: s.url}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := openapi3.NewLoader().LoadFromData(b.ask(200, "GET", "/openapi.json", "", nil).body)
	if err != nil {
		t.Fatal(err)
	}
	code, err := codegen.Generate(spec, codegen.Configuration{PackageName: "main", Generate: codegen.GenerateOptions{Models: true, Client: true}})
	if err != nil {
		t.Fatal(err)
	}
	write("client.go", code)
	write("main.go", `package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

func main() {
	client, err := NewClientWithResponses(os.Args[1])
	if err != nil {
		panic(err)
	}
	got, err := client.GetInstanceWithResponse(context.Background(), "key:a/b %", nil)
	if err != nil || got.StatusCode() != http.StatusNotFound || got.JSONDefault.Error.Code != "not_found" {
		panic(fmt.Sprint(err, string(got.Body)))
	}
	in, err := client.GetInstanceWithResponse(context.Background(), os.Args[2], nil)
	if err != nil || in.JSON200 == nil {
		panic(fmt.Sprint(err, string(in.Body)))
	}
	fmt.Print(in.JSON200.Machine, " ", in.JSON200.Status)
}
`)
	for _, name := range []string{"go.mod", "go.sum"} { // its dependencies are those of this module, so nothing is fetched
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, strings.Replace(string(text), "module github.com/pointsman/pointsman\n", "module client\n", 1))
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".", s.url, s.instance(t))
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "order runnable" {
		t.Errorf("%v: %s\n%s", err, out, stderr.String())
	}
}

// The document is one of OpenAPI 3.1, in JSON and YAML, and for old programs one of 3.0, and each operation is fully described.
func TestDocument(t *testing.T) {
	t.Parallel()
	b := &bundle{T: t, url: newStub(t).url}
	for path, want := range map[string]string{"/openapi.json": `"openapi":"3.1.0"`, "/openapi.yaml": "openapi: 3.1.0", "/openapi-3.0.json": `"openapi":"3.0.3"`} {
		if a := b.ask(200, "GET", path, "", nil); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: no %s in %.200s", path, want, a.body)
		}
	}
	spec, err := openapi3.NewLoader().LoadFromData(b.ask(200, "GET", "/openapi-3.0.json", "", nil).body)
	if err == nil {
		err = spec.Validate(t.Context())
	}
	if err != nil {
		t.Errorf("as 3.0: %v", err)
	}
	var doc document
	b.ask(200, "GET", "/openapi.json", "", &doc)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			if o.OperationID == "" || o.Responses["default"].Content["application/json"] == nil {
				t.Errorf("%s %s: %+v", method, path, o)
			}
			for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' }) {
				if strings.HasPrefix(name, "{") && !strings.Contains(fmt.Sprint(o.Parameters), "{"+strings.Trim(name, "{}")+" path}") {
					t.Errorf("%s %s: %s is no parameter", method, path, name)
				}
			}
		}
	}
	var whole struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	b.ask(200, "GET", "/openapi.json", "", &whole)
	for name, want := range map[string]string{
		"Instance": `"lease":{"anyOf":[{"$ref":"#/components/schemas/Lease"},{"type":"null"}]}`, "ErrorBody": `"error":`,
		"Item": `"error":{"anyOf"`, "PageInstance": `"items":{"items":{"$ref":"#/components/schemas/Instance"},"type":"array"}`,
	} {
		if !strings.Contains(string(whole.Components.Schemas[name]), want) {
			t.Errorf("%s: no %s in %s", name, want, whole.Components.Schemas[name])
		}
	}
}
