package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// DeadLetters returns a page of the dead letters, the latest first.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) (page DeadLetterPage, err error) {
	err = c.get(ctx, parameters(f.Limit, "route", f.Route, "cursor", f.Cursor), &page, "dead-letters")
	return page, err
}

// DeadLetter returns a dead letter with what its message held.
func (c *Client) DeadLetter(ctx context.Context, seq uint64) (letter DeadLetterContent, err error) {
	err = c.get(ctx, nil, &letter, "dead-letters", strconv.FormatUint(seq, 10))
	return letter, err
}

// ReplayDeadLetter gives a dead letter again to the route that refused it, or says what would become of it. What is refused again stays. It is
// sent once, but for a dry run: a second one would find no letter.
func (c *Client) ReplayDeadLetter(ctx context.Context, seq uint64, dryRun bool) (LetterResult, error) {
	return c.letter(ctx, http.MethodPost, dryRun, strconv.FormatUint(seq, 10), "replay")
}

// DropDeadLetter deletes a dead letter for good, or says that it would. It is sent once, but for a dry run.
func (c *Client) DropDeadLetter(ctx context.Context, seq uint64, dryRun bool) (LetterResult, error) {
	return c.letter(ctx, http.MethodDelete, dryRun, strconv.FormatUint(seq, 10))
}

func (c *Client) letter(ctx context.Context, method string, dryRun bool, path ...string) (done LetterResult, err error) {
	query := url.Values{}
	if dryRun {
		query.Set("dry_run", "true")
	}
	err = c.do(ctx, call{method: method, path: append([]string{"v1", "dead-letters"}, path...), query: query, again: dryRun}, &done)
	return done, err
}

// ReplayDeadLetters replays a choice of dead letters, a page at a time: the next request has the answer's NextCursor. It is sent once, but
// for a dry run: the answer would not say what the first one did.
func (c *Client) ReplayDeadLetters(ctx context.Context, choice DeadLetterChoice) (page LetterResultPage, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "dead-letters", "replay"}, body: choice, again: choice.DryRun}, &page)
	return page, err
}

// DropDeadLetters deletes a choice of dead letters for good, as ReplayDeadLetters replays them.
func (c *Client) DropDeadLetters(ctx context.Context, choice DeadLetterChoice) (page LetterResultPage, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "dead-letters", "drop"}, body: choice, again: choice.DryRun}, &page)
	return page, err
}
