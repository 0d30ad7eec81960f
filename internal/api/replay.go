package api

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/ident"
)

// LettersChoice says which dead letters are to be replayed or dropped: one by its sequence, or those of a route, since a time, or with a
// text in their reason. One request does up to limit of those that there are at the first of its pages; the next goes on at the cursor.
type LettersChoice struct {
	Seq            uint64     `json:"seq,omitempty"`
	Route          string     `json:"route,omitempty"`
	Since          *time.Time `json:"since,omitempty"`
	ReasonContains string     `json:"reason_contains,omitempty"`
	All            bool       `json:"all,omitempty"` // has to be said where nothing else is
	DryRun         bool       `json:"dry_run,omitempty"`
	Limit          int        `json:"limit,omitempty"`
	Cursor         string     `json:"cursor,omitempty"`
}

// LetterResult is what became of a dead letter, or would.
type LetterResult struct {
	Seq        uint64  `json:"seq"`
	Route      string  `json:"route"`
	Stream     *string `json:"stream"`
	StreamSeq  uint64  `json:"stream_seq"`
	Result     string  `json:"result"` // the fate of its message, or dropped
	Reason     *string `json:"reason"`
	InstanceID *string `json:"instance_id"`
	SignalID   *int64  `json:"signal_id"`
	Stays      bool    `json:"stays"` // in the dead letters
}

// walk is where a walk over dead letters goes on, and where it ends.
type walk struct{ From, To uint64 }

// ReplayLetters gives dead letters again to the routes that refused them. What is refused again stays.
func (a *API) ReplayLetters(ctx context.Context, r LettersChoice) (Page[LetterResult], error) {
	do := a.Replayer.Replay
	if r.DryRun {
		do = a.Replayer.Would
	}
	return a.eachLetter(ctx, r, func(letters []bridge.Letter) ([]LetterResult, error) {
		done, err := do(ctx, letters)
		results := make([]LetterResult, len(done))
		for i, d := range done {
			results[i] = letterResult(d.Letter, d.Fate)
			results[i].Reason, results[i].Stays = optional(d.Reason), d.Stays
			results[i].InstanceID, results[i].SignalID = optionalID(d.InstanceID), optionalNumber(d.SignalID)
		}
		return results, err
	})
}

// LetterRequest names one dead letter that is to be replayed or dropped.
type LetterRequest struct {
	Seq    uint64 `json:"seq"`
	DryRun bool   `json:"dry_run,omitempty" http:"query,dry_run"`
}

// ReplayLetter gives one dead letter again to the route that refused it.
func (a *API) ReplayLetter(ctx context.Context, r LetterRequest) (LetterResult, error) {
	return only(a.ReplayLetters(ctx, LettersChoice{Seq: r.Seq, DryRun: r.DryRun}))
}

// DropLetter deletes one dead letter for good.
func (a *API) DropLetter(ctx context.Context, r LetterRequest) (LetterResult, error) {
	return only(a.DropLetters(ctx, LettersChoice{Seq: r.Seq, DryRun: r.DryRun}))
}

func only(page Page[LetterResult], err error) (LetterResult, error) {
	if err != nil {
		return LetterResult{}, err
	}
	return page.Items[0], nil
}

// DropLetters deletes dead letters for good.
func (a *API) DropLetters(ctx context.Context, r LettersChoice) (Page[LetterResult], error) {
	return a.eachLetter(ctx, r, func(letters []bridge.Letter) ([]LetterResult, error) {
		results := make([]LetterResult, len(letters))
		for i, l := range letters {
			results[i] = letterResult(l, bridge.FateDropped)
		}
		if r.DryRun {
			return results, nil
		}
		return results, a.Dropper.Drop(ctx, letters)
	})
}

func letterResult(l bridge.Letter, result string) LetterResult {
	return LetterResult{Seq: l.Seq, Route: l.Route, Stream: optional(l.Stream), StreamSeq: l.StreamSeq, Result: result}
}

// eachLetter does something to the next of the chosen dead letters.
func (a *API) eachLetter(ctx context.Context, r LettersChoice, do func([]bridge.Letter) ([]LetterResult, error)) (page Page[LetterResult], err error) {
	letters, next, err := a.choose(ctx, r)
	if err != nil {
		return page, err
	}
	page.Items = []LetterResult{}
	if len(letters) > 0 {
		if page.Items, err = do(letters); err != nil {
			return page, err
		}
	}
	if next.From > 0 {
		page.NextCursor = optional(pack(next))
	}
	return page, nil
}

func (a *API) choose(ctx context.Context, r LettersChoice) (letters []bridge.Letter, next walk, err error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return nil, next, err
	}
	if err := r.check(); err != nil {
		return nil, next, err
	}
	if r.Seq != 0 {
		l, err := a.Letters.Get(ctx, r.Seq)
		return []bridge.Letter{l}, next, err
	}
	choice := bridge.LetterChoice{Route: r.Route, ReasonContains: r.ReasonContains}
	if r.Since != nil {
		choice.Since = *r.Since
	}
	var at walk
	if err := unpack(r.Cursor, &at); err != nil {
		return nil, next, err
	}
	if at.To == 0 {
		if at.From, at.To, err = a.Letters.Range(ctx, choice.Since); err != nil {
			return nil, next, err
		}
	}
	letters, from, err := a.Letters.Choose(ctx, choice, at.From, at.To, limit)
	return letters, walk{from, at.To}, err
}

func (r LettersChoice) check() error {
	others := r.Route != "" || r.Since != nil || r.ReasonContains != ""
	switch {
	case r.Seq != 0 && (others || r.All || r.Cursor != ""):
		return invalid("seq", "and others: want one dead letter, or a choice of them")
	case r.Seq == 0 && !others && !r.All:
		return invalid("all", "is not set, and neither is seq, route, since or reason_contains: say which dead letters")
	case r.Route != "":
		return ident.Token("route", r.Route)
	case len(r.ReasonContains) > maxReasonText:
		return invalid("reason_contains", "has %d bytes, at most %d are allowed", len(r.ReasonContains), maxReasonText)
	}
	return nil
}

// maxReasonText is as long as a reason may be.
const maxReasonText = 1024
