package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/ident"
)

// DeadLettersRequest asks for dead letters, of one route or of all.
type DeadLettersRequest struct {
	Route  string `json:"route,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// DeadLetter is a message that could not be taken in, and why.
type DeadLetter struct {
	Seq        uint64    `json:"seq"` // in the stream of the dead letters
	Route      string    `json:"route"`
	Reason     string    `json:"reason"`
	Stream     *string   `json:"stream"`
	StreamSeq  uint64    `json:"stream_seq"`
	Subject    *string   `json:"subject"`
	MsgID      *string   `json:"msg_id"`
	Deliveries uint64    `json:"deliveries"`
	At         time.Time `json:"at"`
}

// DeadLetterContent is a dead letter with what the message held. Of Data, Text and Base64 it has one.
type DeadLetterContent struct {
	DeadLetter
	Headers map[string][]string `json:"headers"`
	Data    json.RawMessage     `json:"data,omitempty"`        // of a body that is JSON
	Text    *string             `json:"data_text,omitempty"`   // of any other that is UTF-8
	Base64  []byte              `json:"data_base64,omitempty"` // of any other
}

// DeadLetters returns the latest first. They are those of all projects: a route has one, but a letter does not say which.
func (a *API) DeadLetters(ctx context.Context, r DeadLettersRequest) (Page[DeadLetter], error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return Page[DeadLetter]{}, err
	}
	if r.Route != "" {
		err = ident.Token("route", r.Route)
	}
	var before uint64
	if err := errors.Join(err, unpack(r.Cursor, &before)); err != nil {
		return Page[DeadLetter]{}, err
	}
	letters, next, err := a.Letters.List(ctx, r.Route, before, limit)
	if err != nil {
		return Page[DeadLetter]{}, err
	}
	items := make([]DeadLetter, len(letters))
	for i, l := range letters {
		items[i] = deadLetterOf(l)
	}
	cursor := ""
	if next > 0 {
		cursor = pack(next)
	}
	return newPage(items, cursor, func(l DeadLetter) string { return pack(l.Seq) })
}

// DeadLetterRequest asks for one dead letter.
type DeadLetterRequest struct {
	Seq uint64 `json:"seq"`
}

// DeadLetter returns one with its content.
func (a *API) DeadLetter(ctx context.Context, r DeadLetterRequest) (DeadLetterContent, error) {
	l, err := a.Letters.Get(ctx, r.Seq)
	if err != nil {
		return DeadLetterContent{}, err
	}
	out := DeadLetterContent{DeadLetter: deadLetterOf(l), Headers: l.Headers}
	switch {
	case len(l.Data) > 0 && json.Valid(l.Data) && utf8.Valid(l.Data):
		out.Data = l.Data
	case utf8.Valid(l.Data):
		text := string(l.Data)
		out.Text = &text
	default:
		out.Base64 = l.Data
	}
	return out, nil
}

func deadLetterOf(l bridge.Letter) DeadLetter {
	return DeadLetter{
		Seq: l.Seq, Route: l.Route, Reason: l.Reason, Stream: optional(l.Stream), StreamSeq: l.StreamSeq, Subject: optional(l.Subject), MsgID: optional(l.MsgID),
		Deliveries: l.Deliveries, At: l.At.UTC(),
	}
}
