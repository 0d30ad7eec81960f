package bridge

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// content is what is in a message: the payload as JSON, and the headers that expressions see. A CloudEvent shows its attributes as
// ce- headers, in binary and in structured mode.
type content struct {
	payload              json.RawMessage
	headers              map[string][]string
	eventSource, eventID string
}

// open takes a message apart.
func (rt *route) open(m *message) (content, error) {
	contentType, _, _ := strings.Cut(header(m.headers, subjects.HeaderContentType), ";")
	switch contentType = strings.ToLower(strings.TrimSpace(contentType)); {
	case contentType == envelopeType:
		return rt.openEnvelope(m)
	case strings.HasPrefix(contentType, "application/cloudevents-batch"):
		return content{}, errors.New("cloudevent: a batch is several messages in one: publish each event as a message of its own")
	case strings.HasPrefix(contentType, "application/cloudevents"):
		return content{}, fmt.Errorf("cloudevent: the event format %s is not read: want %s, or the attributes as headers", contentType, envelopeType)
	}
	headers := lowerEventHeaders(m.headers)
	payload, err := rt.encode(m.body)
	return newContent(payload, headers), err
}

// envelopeType is the content type of a CloudEvent in structured mode.
const envelopeType = "application/cloudevents+json"

func newContent(payload json.RawMessage, headers map[string][]string) content {
	return content{
		payload: payload, headers: headers,
		eventSource: first(headers[subjects.HeaderCESource]), eventID: first(headers[subjects.HeaderCEID]),
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// encode makes JSON of a body, as the route's format says. No body is null.
func (rt *route) encode(body []byte) (json.RawMessage, error) {
	if len(body) == 0 {
		return json.RawMessage("null"), nil
	}
	switch rt.Format {
	case FormatBytes:
		return json.Marshal(body)
	case FormatText:
		if !utf8.Valid(body) {
			return nil, errors.New("body: is not valid UTF-8")
		}
		payload, err := ident.Encode(string(body))
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return payload, ident.JSON("body", payload, len(payload))
	default:
		return body, ident.JSON("body", body, len(body))
	}
}

// lowerEventHeaders lets expressions find CloudEvents attributes under the spelling of the NATS binding (ce-id), where the producer
// used that of HTTP (Ce-Id).
func lowerEventHeaders(h map[string][]string) map[string][]string {
	const prefix = "ce-"
	var out map[string][]string
	for name, values := range h {
		if len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) || name == strings.ToLower(name) {
			continue
		}
		if out == nil {
			out = maps.Clone(h)
		}
		out[strings.ToLower(name)] = values
	}
	if out == nil {
		return h
	}
	return out
}

// openEnvelope takes a CloudEvent in structured mode apart. The SDK's parser is not used: it passes numbers through floats, and
// panics on some envelopes.
func (rt *route) openEnvelope(m *message) (content, error) {
	if err := ident.JSON("cloudevent", m.body, len(m.body)); err != nil {
		return content{}, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(m.body, &members); err != nil || members == nil {
		return content{}, errors.New("cloudevent: is not a JSON object")
	}
	headers := maps.Clone(map[string][]string(m.headers))
	for name, raw := range members {
		if name != "data" && name != "data_base64" && string(raw) != "null" {
			headers["ce-"+name] = []string{plain(raw)}
		}
	}
	for _, name := range []string{subjects.HeaderCESpecVersion, subjects.HeaderCEID, subjects.HeaderCESource, subjects.HeaderCEType} {
		if first(headers[name]) == "" {
			return content{}, fmt.Errorf("cloudevent: %s is missing", strings.TrimPrefix(name, "ce-"))
		}
	}
	if v := first(headers[subjects.HeaderCESpecVersion]); v != "1.0" {
		return content{}, fmt.Errorf("cloudevent: specversion is %.20q: want \"1.0\"", v)
	}
	payload, err := rt.eventData(members)
	return newContent(payload, headers), err
}

// eventData is the payload of an event: its data as it stands, or what its data is as text or bytes, if the format says so.
func (rt *route) eventData(members map[string]json.RawMessage) (json.RawMessage, error) {
	if encoded, ok := members["data_base64"]; ok && string(encoded) != "null" {
		if encoded[0] != '"' {
			return nil, errors.New("cloudevent: data_base64: is not a string")
		}
		if other, both := members["data"]; both && string(other) != "null" {
			return nil, errors.New("cloudevent: has both data and data_base64: send one")
		}
		data, err := base64.StdEncoding.DecodeString(plain(encoded))
		if err != nil {
			return nil, fmt.Errorf("cloudevent: data_base64: %w", err)
		}
		return rt.encode(data)
	}
	data, ok := members["data"]
	if !ok {
		return json.RawMessage("null"), nil
	}
	if rt.Format == FormatJSON {
		return data, nil
	}
	return rt.encode([]byte(plain(data)))
}

// plain is a JSON string without its quotes; any other value as it is written.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
