package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/ident"
)

// place is where a part of a request stands.
type place string

const (
	inPath   place = "path"
	inQuery  place = "query"
	inHeader place = "header"
	inBody   place = "body" // is all of it
	inObject place = "object"
)

// plan says where the fields of a request come from.
type plan struct {
	request reflect.Type
	fields  []field
	body    bool     // there may be one
	beside  []string // names that the query may have, which are none of the request's
}

type field struct {
	reflect.StructField
	name string // where it stands
	in   place
}

// planOf reads the type of a request. A type that has no place in this operation is a mistake of who wrote it: it panics.
func planOf(t reflect.Type, o operation) plan {
	p := plan{request: t, beside: []string{"project", "project_id"}}
	if o.streams {
		p.beside = append(p.beside, "token")
	}
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		known, ok := fieldOf(f, o)
		if !ok {
			continue
		}
		p.fields = append(p.fields, known)
		p.body = p.body || known.in == inBody || known.in == inObject
	}
	for _, name := range pathNames(o.path) {
		if !slices.ContainsFunc(p.fields, func(f field) bool { return f.in == inPath && f.name == name }) {
			panic(fmt.Sprintf("%s %s: %s has no field for {%s}", o.method, o.path, t, name))
		}
	}
	return p
}

func fieldOf(f reflect.StructField, o operation) (field, bool) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if slices.Contains(o.omit, name) {
		return field{}, false
	}
	if slices.Contains(pathNames(o.path), name) {
		return field{f, name, inPath}, true
	}
	if tag, ok := f.Tag.Lookup("http"); ok {
		in, as, _ := strings.Cut(tag, ",")
		return field{f, as, place(in)}, true
	}
	if name == "-" {
		return field{}, false
	}
	if o.method == http.MethodGet || o.method == http.MethodDelete {
		return field{f, name, inQuery}, true
	}
	return field{f, name, inObject}, true
}

// pathNames are the names in braces.
func pathNames(path string) (names []string) {
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// read fills in a request.
func (p plan) read(r *http.Request, maxBody int, into reflect.Value) error {
	query, err := p.query(r)
	if err != nil {
		return err
	}
	if err := p.readBody(r, maxBody, into); err != nil {
		return err
	}
	for _, f := range p.fields {
		text, ok := "", false
		switch f.in {
		case inPath:
			text, ok = r.PathValue(f.name), true
			if !into.FieldByIndex(f.Index).IsZero() {
				return invalid(f.name, "is in the path: leave it out of the body")
			}
		case inQuery:
			text, ok = query.Get(f.name), query.Has(f.name)
		case inHeader:
			if values := r.Header.Values(f.name); len(values) > 1 {
				return invalid(f.name, "is given %d times", len(values))
			}
			text, ok = r.Header.Get(f.name), r.Header.Get(f.name) != ""
		}
		if !ok {
			continue
		}
		if err := setField(f.name, into.FieldByIndex(f.Index), text); err != nil {
			return err
		}
	}
	return nil
}

// query checks that each name is known, and there once.
func (p plan) query(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("query", "%v", err)
	}
	for name, values := range query {
		known := slices.Contains(p.beside, name) || slices.ContainsFunc(p.fields, func(f field) bool { return f.in == inQuery && f.name == name })
		if !known {
			return nil, invalid(shown(name), "is no parameter of this request%s", p.hint())
		}
		if len(values) > 1 {
			return nil, invalid(name, "is given %d times", len(values))
		}
	}
	return query, nil
}

// hint lists the names that a query may have.
func (p plan) hint() string {
	var names []string
	for _, f := range p.fields {
		if f.in == inQuery {
			names = append(names, f.name)
		}
	}
	return ": it has " + strings.Join(append(names, p.beside...), ", ")
}

func (p plan) readBody(r *http.Request, maxBody int, into reflect.Value) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return invalid("Content-Encoding", "%.40q is not read: send the body as it is", shown(coding))
	}
	body, err := readAll(r, maxBody)
	if err != nil {
		return err
	}
	if !p.body {
		if strings.Trim(string(body), " \t\r\n") != "" && !p.acceptsEmptyObject(r, body) {
			return invalid("body", "is not empty, and this request has none")
		}
		return nil
	}
	for _, f := range p.fields {
		if f.in != inBody {
			continue
		}
		value := into.FieldByIndex(f.Index)
		if value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Uint8 { // what checks it is who takes it
			value.SetBytes(body)
			return nil
		}
		return api.Decode(body, value.Addr().Interface())
	}
	if trimmed := strings.TrimLeft(string(body[:min(len(body), 64)]), " \t\r\n"); trimmed != "" && trimmed[0] != '{' {
		if err := ident.JSON("body", body, len(body)); err != nil {
			return err
		}
		return invalid("body", "is no JSON object")
	}
	return api.Decode(body, into.Addr().Interface())
}

// acceptsEmptyObject: clients that always send one are no trouble.
func (p plan) acceptsEmptyObject(r *http.Request, body []byte) bool {
	return r.Method == http.MethodPost && strings.Trim(string(body), " \t\r\n") == "{}"
}

func readAll(r *http.Request, most int) ([]byte, error) {
	if r.ContentLength > int64(most) {
		passOver(r)
		return nil, tooLarge(most)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, int64(most)))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		passOver(r)
		return nil, tooLarge(most)
	case err != nil:
		return nil, invalid("body", "could not be read: %v", err)
	}
	return body, nil
}

// passedOver is how much of a body is read that is refused for its size: who is still writing would see a broken connection, not why.
const passedOver = 64 << 20

func passOver(r *http.Request) {
	if r.Header.Get("Expect") == "" { // else it waits to be asked for the body
		_, _ = io.CopyN(io.Discard, r.Body, passedOver)
	}
}

func tooLarge(most int) error {
	return &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes: http.max_body sets how many are allowed", most)}
}

// setField reads a value out of a path, a query or a header.
func setField(name string, v reflect.Value, text string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if at, ok := v.Addr().Interface().(*time.Time); ok {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return invalid(name, "%.40q is no time: want RFC 3339, as 2030-01-02T15:04:05Z", text)
		}
		*at = t
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return invalid(name, "%.40q: want true or false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return invalid(name, "%.40q is no whole number of its range", text)
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return invalid(name, "%.40q is no whole number of its range", text)
		}
		v.SetUint(n)
	default:
		panic(fmt.Sprintf("%s: a %s cannot be in a path, a query or a header", name, v.Type()))
	}
	return nil
}

// validText finds bytes that are no UTF-8 anywhere in a request but its body, which is read later.
func validText(r *http.Request) error {
	if !utf8.ValidString(r.URL.Path) {
		return invalid("path", "is not valid UTF-8")
	}
	if !utf8.ValidString(r.URL.RawQuery) {
		return invalid("query", "is not valid UTF-8")
	}
	if decoded, err := url.ParseQuery(r.URL.RawQuery); err == nil {
		for name, values := range decoded {
			for _, v := range append(values, name) {
				if !utf8.ValidString(v) {
					return invalid("query", "is not valid UTF-8")
				}
			}
		}
	}
	for name, values := range r.Header {
		for _, v := range values {
			if !utf8.ValidString(v) {
				return invalid(name, "is not valid UTF-8")
			}
		}
	}
	return nil
}

// shown is a text of the request for the text of an error.
func shown(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

func invalid(field, format string, args ...any) error {
	return &engine.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
