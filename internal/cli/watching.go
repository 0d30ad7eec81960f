package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// How often a watched answer is asked for again that nobody gives notice of.
const (
	defaultEvery = time.Second
	leastEvery   = 100 * time.Millisecond
)

// watching are the flags of a command that goes on.
type watching struct {
	on    bool
	every time.Duration
}

func (w *watching) add(c *cobra.Command) {
	c.Flags().BoolVar(&w.on, "watch", false, "show it again whenever it has changed, until Ctrl-C")
	c.Flags().DurationVar(&w.every, "every", defaultEvery, "with --watch: how often to ask")
}

func (w *watching) check(c *cobra.Command) error {
	switch {
	case !w.on && c.Flags().Changed("every"):
		return usage(c, errors.New("--every goes with --watch"))
	case w.every < leastEvery:
		return usage(c, fmt.Errorf("--every %s: want %s or more", w.every, leastEvery))
	}
	return nil
}

// answer is what a command shows: a document, and the same as a table.
type answer struct {
	document any
	table    *table
	more     bool // it is cut short
}

// present shows what fetch returns, once, or each time that it has changed.
func (s *session) present(ctx context.Context, w watching, fetch func(context.Context) (answer, error)) error {
	if !w.on {
		a, err := fetch(ctx)
		if err != nil {
			return err
		}
		return s.answer(a)
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for last := ""; ; {
		a, err := fetch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if now := a.table.String(); now != last {
			if err := s.next(a, last == ""); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// answer shows a whole one.
func (s *session) answer(a answer) error {
	if s.json {
		return s.document(s.out, a.document)
	}
	if err := s.print(s.out, a.table); err != nil || !a.more {
		return err
	}
	_, err := fmt.Fprintln(s.errOut, "There are more: see --limit.")
	return err
}

// next shows one of several.
func (s *session) next(a answer, first bool) error {
	if s.json {
		return s.another(s.out, a.document)
	}
	if !first {
		if _, err := fmt.Fprintln(s.out); err != nil {
			return err
		}
	}
	return s.answer(a)
}
