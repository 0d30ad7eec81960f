package ident

import (
	"bytes"
	"encoding/json"
)

// Encode is json.Marshal without the escapes that are for HTML: they would make six bytes of one, and push a document of XML over
// [MaxJSON].
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
