package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
)

// Decode reads a body strictly: valid UTF-8, one JSON value, no field that is not known. The error is an [*engine.InvalidError]. No body
// leaves into as it is.
func Decode(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := ident.JSON("body", body, len(body)); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return invalid(wrong.Field, "is a JSON %s, and %s is wanted", wrong.Value, wantedKind(wrong))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid(strings.Trim(name, `"`), "is not a field of this request")
	}
	return invalid("body", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

func wantedKind(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number of its range"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "an array"
	default:
		return "a " + kind
	}
}

// Items is a body that is one object or an array of them.
type Items[T any] struct {
	All []T
	One bool // it was an object
}

// UnmarshalJSON reads either form, strictly.
func (i *Items[T]) UnmarshalJSON(body []byte) error {
	if body = bytes.TrimSpace(body); len(body) == 0 || body[0] != '[' {
		i.One, i.All = true, make([]T, 1)
		return strict(body, &i.All[0])
	}
	return strict(body, &i.All)
}

// strict is what DisallowUnknownFields does not do inside an UnmarshalJSON.
func strict(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// emptyKey is the error of a key that is there and empty, which is another thing than none.
func emptyKey(object []byte, fields ...string) error {
	if !bytes.Contains(object, []byte(`""`)) { // of nearly all
		return nil
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return err
	}
	for _, field := range fields {
		if string(values[field]) == `""` {
			return ident.Key(field, "")
		}
	}
	return nil
}

func (i *Items[T]) check() error {
	if len(i.All) == 0 {
		return invalid("body", "is empty: want an object, or an array of up to %d", MaxItems)
	}
	if len(i.All) > MaxItems {
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the array has %d items, at most %d are allowed", len(i.All), MaxItems)}
	}
	return nil
}

// Item is what became of one of an array.
type Item struct {
	Result     string  `json:"result"` // "" with an error
	InstanceID *string `json:"instance_id"`
	SignalID   *int64  `json:"signal_id"`
	Error      *Error  `json:"error"`
}

// Results answers an array, in its order.
type Results struct {
	Results []Item `json:"results" nullable:"false"`
}

// refOf reads a reference: an instance id, or key:<correlation key>.
func refOf(project, ref string) (engine.Ref, error) {
	if key, ok := strings.CutPrefix(ref, "key:"); ok {
		return engine.ByKey(project, key), ident.Key("ref", key)
	}
	id, err := parseID("ref", ref)
	return engine.ByID(id).In(project), err
}
