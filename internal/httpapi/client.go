package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/ident"
)

// Call is an operation as a client sends it.
type Call struct {
	Method string
	Path   string // with its names in braces
	Whole  bool   // the request is the body, and has nothing for the path and the query
}

// Client asks a [Server] for any of its operations, whose requests are those of package api.
type Client struct {
	URL     string // of the server, as http://127.0.0.1:8080
	Token   string // "": none
	Project string // "": the server's default, or that of the token
	HTTP    *http.Client
}

// NewClient checks the URL, and talks to nobody. It follows no redirects: a token is for the server that was named.
func NewClient(address, token, project string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%.100q is no URL of a bridge: want http://host:port", address)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{URL: strings.TrimSuffix(u.String(), "/"), Token: token, Project: project, HTTP: &http.Client{CheckRedirect: stay}}, nil
}

// Do sends a request and reads its answer into response, if that is not nil. headers are pairs of name and value; those without a value
// are left out. The error of a refusal is an [*api.Error].
func (c *Client) Do(ctx context.Context, call Call, request, response any, headers ...string) error {
	r, err := c.request(ctx, call, request, headers)
	if err != nil {
		return err
	}
	resp, err := c.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode != http.StatusUnprocessableEntity: // which is a verdict on an update
		return refusalOf(resp, text)
	case response == nil:
		return nil
	}
	if err := json.Unmarshal(text, response); err != nil {
		return fmt.Errorf("%s %s: the answer cannot be read: %w", r.Method, r.URL.Path, err)
	}
	return nil
}

func refusalOf(resp *http.Response, text []byte) error {
	var b api.ErrorBody
	if err := json.Unmarshal(text, &b); err == nil && b.Error != nil {
		return b.Error
	}
	return fmt.Errorf("%s %s: %s: %.200q is no answer of pointsman: does the URL name a bridge?", resp.Request.Method, resp.Request.URL.Redacted(), resp.Status, text)
}

func (c *Client) request(ctx context.Context, call Call, request any, headers []string) (*http.Request, error) {
	w := wire{path: call.Path, query: url.Values{}, header: http.Header{}}
	var err error
	if call.Whole {
		w.body, err = ident.Encode(request)
	} else {
		err = w.write(call, request)
	}
	if err != nil {
		return nil, err
	}
	if c.Project != "" {
		w.query.Set("project", c.Project)
	}
	target := c.URL + w.path
	if len(w.query) > 0 {
		target += "?" + w.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, call.Method, target, bytes.NewReader(w.body))
	if err != nil {
		return nil, err
	}
	r.Header = w.header
	if len(w.body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r, nil
}

// wire is a request as it is sent.
type wire struct {
	path   string
	query  url.Values
	header http.Header
	body   []byte
}

// write puts each field where [plan.read] looks for it.
func (w *wire) write(call Call, request any) error {
	v := reflect.ValueOf(request)
	p := planOf(v.Type(), operation{method: call.Method, path: call.Path})
	elsewhere := []string{}
	for _, f := range p.fields {
		value := v.FieldByIndex(f.Index)
		if f.in != inObject {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			elsewhere = append(elsewhere, name)
		}
		switch {
		case f.in == inPath:
			segment := textOf(value)
			if segment == "" {
				return invalid(f.name, "is empty")
			}
			w.path = strings.Replace(w.path, "{"+f.name+"}", escape(segment), 1)
		case value.IsZero():
		case f.in == inQuery:
			w.query.Set(f.name, textOf(value))
		case f.in == inHeader:
			w.header.Set(f.name, textOf(value))
		case f.in == inBody:
			body, ok := value.Interface().(json.RawMessage)
			if !ok {
				return errors.New("httpapi: a request of this type cannot be sent")
			}
			w.body = body
		}
	}
	if !slices.ContainsFunc(p.fields, func(f field) bool { return f.in == inObject }) {
		return nil
	}
	return w.object(request, elsewhere)
}

// object writes the fields that stand in the body.
func (w *wire) object(request any, elsewhere []string) error {
	text, err := ident.Encode(request)
	if err != nil {
		return err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	for _, name := range elsewhere {
		delete(fields, name)
	}
	w.body, err = ident.Encode(fields)
	return err
}

// textOf is a value as it stands in a path, a query or a header.
func textOf(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if at, ok := v.Interface().(time.Time); ok {
		return at.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.Interface())
}

// escape a segment of a path; dots alone would be taken for places in a tree.
func escape(segment string) string {
	if strings.Trim(segment, ".") == "" {
		return strings.ReplaceAll(segment, ".", "%2E")
	}
	return url.PathEscape(segment)
}
