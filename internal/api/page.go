package api

import (
	"encoding/base64"
	"encoding/json"

	"github.com/google/uuid"
)

// Page is a part of a list. NextCursor is where the next one begins; null: there is none.
type Page[T any] struct {
	Items      []T     `json:"items" nullable:"false"`
	NextCursor *string `json:"next_cursor"`
}

// newPage cuts the items to what an answer may hold. cursor is where the page after an item begins, and next where the one after all of
// them does, "" if there is none.
func newPage[T any](items []T, next string, cursor func(T) string) (Page[T], error) {
	page := Page[T]{Items: items}
	if page.Items == nil {
		page.Items = []T{}
	}
	size := 0
	for i, item := range items {
		text, err := json.Marshal(item)
		if err != nil {
			return Page[T]{}, err
		}
		if size += len(text); size > pageBytes && i > 0 {
			page.Items, next = items[:i], cursor(items[i-1])
			break
		}
	}
	if next != "" {
		page.NextCursor = &next
	}
	return page, nil
}

// limited is the limit that a request asks for.
func limited(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultLimit, nil
	case limit < 0 || limit > MaxLimit:
		return 0, invalid("limit", "is %d: want 1 to %d", limit, MaxLimit)
	}
	return limit, nil
}

// pack makes an opaque cursor of what says where a page begins.
func pack(place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func unpack(cursor string, place any) error {
	if cursor == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, place)
	}
	if err != nil {
		return invalid("cursor", "is not one that a list gave")
	}
	return nil
}

func parseID(field, s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 || id == uuid.Nil {
		return uuid.Nil, invalid(field, "%.60q is no instance id: want a UUID, or key:<correlation key>", s)
	}
	return id, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optionalID(id uuid.UUID) *string {
	if id == uuid.Nil {
		return nil
	}
	return optional(id.String())
}

func optionalNumber(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
