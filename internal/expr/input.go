package expr

import (
	"encoding/json"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Input is the message that expressions see. Fill it, then evaluate any number of templates and conditions
// on it, from one goroutine at a time: it remembers what it has taken apart. Do not change it in between.
type Input struct {
	// Payload is a JSON document that the validator of the entry has accepted. None at all reads as null.
	// On anything else expressions give an error or a value without meaning, and never panic.
	Payload json.RawMessage
	Headers map[string][]string
	Subject string
	Stream  string
	Seq     uint64
	Time    time.Time
	// Documents are JSON documents that the scope of an expression names beside the payload.
	Documents map[string]json.RawMessage

	root    ref.Val
	headers map[string]string
	tokens  []string
}

func (in *Input) payload() ref.Val {
	if in.root == nil {
		in.root = toValue(in.Payload)
	}
	return in.root
}

func (in *Input) subject() []string {
	if in.tokens == nil {
		in.tokens = strings.Split(in.Subject, ".")
	}
	return in.tokens
}

func (in *Input) header(name string) (string, bool) {
	values := in.Headers[name]
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

func (in *Input) firstHeaders() map[string]string {
	if in.headers == nil {
		in.headers = make(map[string]string, len(in.Headers))
		for name, values := range in.Headers {
			if len(values) > 0 {
				in.headers[name] = values[0]
			}
		}
	}
	return in.headers
}

// message is a member of msg; the checker lets no other name through.
func (in *Input) message(member string) (ref.Val, bool) {
	switch member {
	case "stream":
		return types.String(in.Stream), true
	case "seq":
		return types.Int(in.Seq), true
	case "time":
		return types.Timestamp{Time: in.Time.UTC()}, true
	case "subject":
		return types.String(in.Subject), true
	}
	return nil, false
}

// activation shows an Input to CEL without giving Input itself CEL's methods.
type activation Input

func (a *activation) ResolveName(name string) (any, bool) {
	in := (*Input)(a)
	switch name {
	case "payload":
		return in.payload(), true
	case "headers":
		return in.firstHeaders(), true
	case "subject":
		return in.subject(), true
	}
	if doc, ok := in.Documents[name]; ok {
		return toValue(doc), true
	}
	member, ok := strings.CutPrefix(name, "msg.")
	if !ok {
		return nil, false
	}
	return in.message(member)
}

func (a *activation) Parent() cel.Activation { return nil }
