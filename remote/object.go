package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
)

// object is a JSON object whose fields are asked for one by one, so that each is of its type and none is left over. A field that is
// null counts as left out. The first mistake is noted for the whole document, and what is wrong is as left out.
type object struct {
	path   string // "" or "signal[0]."
	fields map[string]json.RawMessage
	known  []string // fields that were asked for
	err    *error
}

// newObject reads data, which is valid JSON. name is "" for the whole document.
func newObject(name string, data json.RawMessage, err *error) *object {
	o := &object{fields: map[string]json.RawMessage{}, err: err}
	dec := json.NewDecoder(bytes.NewReader(data))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		o.note(name, "is %s, want an object", show(data))
		return o
	}
	if name != "" {
		o.path = name + "."
	}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			o.note(name, "cannot be read: %v", err)
			return o
		}
		field := fmt.Sprint(key)
		if _, twice := o.fields[field]; twice {
			o.fail(field, "is there twice")
		}
		o.fields[field] = value
	}
	return o
}

func (o *object) fail(name, format string, args ...any) { o.note(o.path+name, format, args...) }

func (o *object) note(path, format string, args ...any) {
	if *o.err == nil {
		if path == "" {
			path = "the answer"
		}
		*o.err = &ident.Error{Field: path, Reason: fmt.Sprintf(format, args...)}
	}
}

func (o *object) check(err error) {
	if *o.err == nil && err != nil {
		*o.err = err
	}
}

// show is a value for a message, not longer than one wants to read.
func show(raw json.RawMessage) string {
	const most = 60
	s := bytes.TrimSpace(raw)
	if len(s) > most {
		return string(bytes.ToValidUTF8(s[:most], nil)) + "…"
	}
	return string(s)
}

func (o *object) has(name string) bool {
	raw, ok := o.fields[name]
	return ok && string(raw) != "null"
}

// take returns a field, nil where it is left out, and marks it as known.
func (o *object) take(name string) json.RawMessage {
	o.known = append(o.known, name)
	raw := o.fields[name]
	delete(o.fields, name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// value is any JSON.
func (o *object) value(name string) json.RawMessage {
	raw := o.take(name)
	if len(raw) > ident.MaxJSON {
		o.fail(name, "has %d bytes: at most %d", len(raw), ident.MaxJSON)
		return nil
	}
	return raw
}

// decode reads a field that is there into to.
func (o *object) decode(name, want string, to any) bool {
	raw := o.take(name)
	if raw == nil {
		return false
	}
	if err := json.Unmarshal(raw, to); err != nil {
		o.fail(name, "is %s, want %s", show(raw), want)
		return false
	}
	return true
}

func (o *object) text(name string) (s string) {
	o.decode(name, "text", &s)
	return s
}

// checked reads a text that passes a check of package ident.
func (o *object) checked(name string, check func(field, s string) error) string {
	var s string
	if o.decode(name, "text", &s) {
		o.check(check(o.path+name, s))
	}
	return s
}

func (o *object) flag(name string) (b bool) {
	o.decode(name, "true or false", &b)
	return b
}

func (o *object) integer(name string, least, most int64) (n int64) {
	raw := o.take(name)
	if raw == nil {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < least || n > most {
		o.fail(name, "is %s, want a whole number from %d to %d", show(raw), least, most)
		return 0
	}
	return n
}

// millis is a time in milliseconds.
func (o *object) millis(name string, least int64) time.Duration {
	return time.Duration(o.integer(name, least, math.MaxInt64/int64(time.Millisecond)/4)) * time.Millisecond
}

func (o *object) time(name string) (at time.Time) {
	o.decode(name, "a time as 2006-01-02T15:04:05Z", &at)
	return at
}

// texts is a list of texts.
func (o *object) texts(name string) (list []string) {
	o.decode(name, "a list of texts", &list)
	return list
}

// object reads a field that is an object, as one without fields where it is left out.
func (o *object) object(name string) *object {
	raw := o.take(name)
	if raw == nil {
		return &object{err: o.err}
	}
	return newObject(o.path+name, raw, o.err)
}

// objects reads a field that is a list of objects.
func (o *object) objects(name string) (list []*object) {
	var raws []json.RawMessage
	o.decode(name, "a list of objects", &raws)
	for i, raw := range raws {
		list = append(list, newObject(fmt.Sprintf("%s%s[%d]", o.path, name, i), raw, o.err))
	}
	return list
}

// names of the fields that were not taken yet.
func (o *object) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// close fails for a field that nobody asked for.
func (o *object) close(what string) {
	for _, name := range o.names() {
		if o.has(name) {
			slices.Sort(o.known)
			o.fail(show(json.RawMessage(name)), "%s has no such field: there are %s", what, strings.Join(slices.Compact(o.known), ", "))
		}
	}
}
