package engine

import (
	"encoding/json"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
)

// Kinds of entries in an inbox.
const (
	KindSignal = "signal"
	KindUpdate = "update"
	KindEvent  = "event"
	KindChild  = "child"
)

// Signal is an entry of an inbox. To send one, give Name, Payload and, so that a second one does not count, DedupKey.
type Signal struct {
	ID          int64           `json:"id"` // grows within one inbox
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	Payload     json.RawMessage `json:"payload"`
	DedupKey    string          `json:"dedup_key,omitempty"`
	InsertedAt  time.Time       `json:"inserted_at"`
	SentBy      string          `json:"sent_by,omitempty"` // in [Client.Inbox] only: who sent it, where that is known
	Traceparent string          `json:"-"`
}

// Decode reads the payload into v.
func (s Signal) Decode(v any) error { return json.Unmarshal(s.Payload, v) }

// MustJSON is v as JSON. It panics where v cannot be that; in a step, which is where it is meant to be used, this is the step's
// error.
func MustJSON(v any) json.RawMessage {
	b, err := ident.Encode(v)
	if err != nil {
		panic(err)
	}
	return b
}

// checkSignal is the validator of what is sent.
func checkSignal(name string, payload []byte, dedupKey string) error {
	if err := ident.Name("name", name); err != nil {
		return err
	}
	if dedupKey != "" {
		if err := ident.Key("dedup_key", dedupKey); err != nil {
			return err
		}
	}
	return checkJSON("payload", payload)
}

// checkJSON accepts nothing, which is null, and what Postgres can hold.
func checkJSON(field string, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return ident.JSON(field, b, ident.MaxJSON)
}

func checkRef(to Ref) error {
	if to.key == "" {
		return nil
	}
	if err := ident.Token("project", to.named().project); err != nil {
		return err
	}
	return ident.Key("correlation_key", to.key)
}
