package dag

import (
	"encoding/json"
	"fmt"
	"sort"

	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
)

// Value is a document whose texts are templates. One of these fields is set.
type Value struct {
	Template *expr.Template
	JSON     json.RawMessage // as it stands
	List     []*Value
	Object   map[string]*Value
}

// Render makes the document. The error is an [*ident.Error] that names the expression.
func (v *Value) Render(in *expr.Input) (json.RawMessage, error) {
	doc, err := v.append(nil, in)
	if err != nil {
		return nil, err
	}
	return doc, ident.JSON("it", doc, ident.MaxJSON)
}

func (v *Value) append(doc []byte, in *expr.Input) ([]byte, error) {
	switch {
	case v.Template != nil:
		part, err := v.Template.JSON(in)
		return append(doc, part...), err
	case v.List != nil:
		doc = append(doc, '[')
		for i, item := range v.List {
			if i > 0 {
				doc = append(doc, ',')
			}
			var err error
			if doc, err = item.append(doc, in); err != nil {
				return nil, err
			}
		}
		return append(doc, ']'), nil
	case v.Object != nil:
		names := make([]string, 0, len(v.Object))
		for name := range v.Object {
			names = append(names, name)
		}
		sort.Strings(names)
		doc = append(doc, '{')
		for i, name := range names {
			if i > 0 {
				doc = append(doc, ',')
			}
			key, err := ident.Encode(name)
			if err != nil {
				return nil, fmt.Errorf("key %q: %w", name, err)
			}
			doc = append(append(doc, key...), ':')
			if doc, err = v.Object[name].append(doc, in); err != nil {
				return nil, err
			}
		}
		return append(doc, '}'), nil
	default:
		return append(doc, v.JSON...), nil
	}
}
