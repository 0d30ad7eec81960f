package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

const schemas = "#/components/schemas/"

// describe is the configuration of the OpenAPI document.
func describe(version string) huma.Config {
	registry := huma.NewMapRegistry(schemas, huma.DefaultSchemaNamer)
	registry.RegisterTypeAlias(reflect.TypeFor[engine.Status](), reflect.TypeFor[status]())
	registry.RegisterTypeAlias(reflect.TypeFor[api.HeaderValue](), reflect.TypeFor[headerValue]())
	registry.RegisterTypeAlias(reflect.TypeFor[api.Updated](), reflect.TypeFor[verdict]())
	cfg := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "pointsman", Version: version,
				Description: "Durable state machines that wait for events. {ref} is the id of an instance, or key:<correlation key>, percent-encoded.",
			},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "An API key, or the admin token. An API that has neither is open to its own machine."},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: huma.DefaultFormats, DefaultFormat: "application/json",
	}
	cfg.AllowAdditionalPropertiesByDefault = true // answers may get more fields
	return cfg
}

// status of an instance, as a schema.
type status struct{}

func (status) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{"runnable", "executing", "awaiting_signal", "done", "failed", "canceled"}}
}

// headerValue is one value of a header of a message, or several.
type headerValue struct{}

func (headerValue) Schema(huma.Registry) *huma.Schema {
	one := &huma.Schema{Type: huma.TypeString}
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one}}}
}

// document adds an operation to the OpenAPI document.
func (s *Server) document(o operation, p plan, answer reflect.Type) {
	registry := s.huma.OpenAPI().Components.Schemas
	op := &huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Tags: []string{o.tag}, Description: o.needs(),
		Parameters: p.parameters(registry, o), RequestBody: p.requestBody(registry, o), Responses: map[string]*huma.Response{},
	}
	content := map[string]*huma.MediaType{"application/json": {Schema: s.answerSchema(o, answer)}}
	if o.streams {
		content = map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	for _, code := range append([]int{o.documented()}, o.statuses...) {
		op.Responses[strconv.Itoa(code)] = &huma.Response{Description: http.StatusText(code), Content: content}
	}
	if o.tagged() {
		op.Responses["304"] = &huma.Response{Description: "it is as If-None-Match says"}
	}
	op.Responses["default"] = &huma.Response{
		Description: "Error", Content: map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(reflect.TypeFor[api.ErrorBody](), true, "ErrorBody")}},
	}
	s.huma.OpenAPI().AddOperation(op)
}

func (o operation) documented() int {
	if o.status != 0 {
		return o.status
	}
	return http.StatusOK
}

func (o operation) needs() string {
	if o.shared {
		return fmt.Sprintf("Takes the admin token (scope %s): it belongs to no project.", o.scope)
	}
	return fmt.Sprintf("Takes the scope %s.", o.scope)
}

func (s *Server) answerSchema(o operation, answer reflect.Type) *huma.Schema {
	registry := s.huma.OpenAPI().Components.Schemas
	if len(o.answers) == 0 {
		return registry.Schema(answer, true, o.id)
	}
	one := &huma.Schema{}
	for _, v := range o.answers {
		one.OneOf = append(one.OneOf, registry.Schema(reflect.TypeOf(v), true, o.id))
	}
	return one
}

func (p plan) parameters(registry huma.Registry, o operation) (params []*huma.Param) {
	for _, f := range p.fields {
		if f.in == inPath || f.in == inQuery || f.in == inHeader {
			params = append(params, &huma.Param{
				Name: f.name, In: string(f.in), Required: f.in == inPath, Description: f.Tag.Get("doc"), Schema: parameterSchema(registry, f),
			})
		}
	}
	project := "The project, with the admin token or an open API; an API key has its own."
	params = append(params, &huma.Param{Name: "project", In: "query", Description: project, Schema: &huma.Schema{Type: huma.TypeString}},
		&huma.Param{Name: "project_id", In: "query", Description: "Another name of project.", Schema: &huma.Schema{Type: huma.TypeString}})
	if o.streams {
		params = append(params, &huma.Param{Name: "token", In: "query", Description: "The token, of browsers: they cannot send the header.", Schema: &huma.Schema{Type: huma.TypeString}})
	}
	return params
}

func parameterSchema(registry huma.Registry, f field) *huma.Schema {
	schema := huma.SchemaFromField(registry, f.StructField, f.name)
	schema.Nullable, schema.Description = false, ""
	return schema
}

// requestBody is that of an operation, nil where it has none.
func (p plan) requestBody(registry huma.Registry, o operation) *huma.RequestBody {
	if !p.body {
		return nil
	}
	body := &huma.RequestBody{Content: map[string]*huma.MediaType{}}
	schema := &huma.Schema{}
	if i := slices.IndexFunc(p.fields, func(f field) bool { return f.in == inBody }); i >= 0 {
		schema = bodySchema(registry, p.fields[i].Type, o)
		body.Required = p.fields[i].Type.Kind() == reflect.Struct
	} else {
		whole := huma.SchemaFromType(registry, p.request)
		schema = &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
		for _, f := range p.fields {
			if f.in != inObject {
				continue
			}
			schema.Properties[f.name] = whole.Properties[f.name]
			if slices.Contains(whole.Required, f.name) {
				schema.Required = append(schema.Required, f.name)
				body.Required = true
			}
		}
	}
	body.Content["application/json"] = &huma.MediaType{Schema: schema}
	return body
}

// bodySchema is that of a body that is all one field: a document, or [api.Items].
func bodySchema(registry huma.Registry, t reflect.Type, o operation) *huma.Schema {
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.Name(), "Items[") {
		return registry.Schema(t, true, o.id+"Request")
	}
	all, _ := t.FieldByName("All")
	most := api.MaxItems
	item := registry.Schema(all.Type.Elem(), true, o.id+"Request")
	registry.SchemaFromRef(item.Ref).AdditionalProperties = false
	return &huma.Schema{OneOf: []*huma.Schema{item, {Type: huma.TypeArray, Items: item, MaxItems: &most}}}
}

// finishDocument writes what the types cannot say: a pointer to a struct that is always written may be null.
func (s *Server) finishDocument() {
	registry := s.huma.OpenAPI().Components.Schemas
	for name, schema := range registry.Map() {
		if schema.AdditionalProperties == true {
			schema.AdditionalProperties = nil // which says the same, and less
		}
		t := registry.TypeFromRef(schemas + name)
		for _, f := range reflect.VisibleFields(t) {
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			property := schema.Properties[key]
			if property == nil || f.Type.Kind() != reflect.Pointer || property.Ref == "" || strings.Contains(options, "omitempty") || f.Tag.Get("nullable") == "false" {
				continue
			}
			schema.Properties[key] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: property.Ref}, {Type: "null"}}}
		}
	}
}

// serveDocument serves the document, when it is complete, as /openapi.json and /openapi.yaml, and for programs that do not know OpenAPI 3.1
// as /openapi-3.0.json.
func (s *Server) serveDocument() error {
	document := s.huma.OpenAPI()
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	yaml, err := document.YAML()
	if err != nil {
		return err
	}
	old, err := document.Downgrade()
	if err != nil {
		return err
	}
	if old, err = withoutNull(old); err != nil {
		return err
	}
	for name, body := range map[string][]byte{"/openapi.json": text, "/openapi-3.0.json": old, "/openapi.yaml": yaml} {
		mime := "application/openapi+" + strings.TrimPrefix(path.Ext(name), ".")
		s.mux.HandleFunc("GET "+name, s.compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mime)
			_, _ = w.Write(body) // who asked has gone
		})))
	}
	return nil
}

// withoutNull writes "this, or null" as OpenAPI 3.0 has it, where null is no type.
func withoutNull(document []byte) ([]byte, error) {
	var root any
	if err := json.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				visit(item)
			}
		case map[string]any:
			if either, ok := v["anyOf"].([]any); ok && len(either) == 2 && reflect.DeepEqual(either[1], map[string]any{"type": "null"}) {
				delete(v, "anyOf")
				v["allOf"], v["nullable"] = either[:1], true
			}
			for _, item := range v {
				visit(item)
			}
		}
	}
	visit(root)
	return json.Marshal(root)
}
