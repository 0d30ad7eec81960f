package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// letterFlags say which dead letters are meant.
type letterFlags struct {
	api.LettersChoice
	since string
	limit int
}

func (f *letterFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.Route, "route", "", "those of this route")
	c.Flags().StringVar(&f.since, "since", "", "those since a time (2026-01-31T12:00:00Z) or for a while (2h)")
	c.Flags().StringVar(&f.ReasonContains, "reason-contains", "", "those with this text in their reason")
	c.Flags().BoolVar(&f.All, "all", false, "all of them")
	c.Flags().IntVar(&f.limit, "limit", 0, "how many at most (default: no limit)")
	c.Flags().BoolVar(&f.DryRun, "dry-run", false, "change nothing, and say what would become of them")
}

// read the arguments.
func (f *letterFlags) read(c *cobra.Command, args []string) (err error) {
	some := f.Route != "" || f.since != "" || f.ReasonContains != "" || f.All
	switch {
	case f.limit < 0:
		return usage(c, fmt.Errorf("--limit %d: want 1 or more", f.limit))
	case len(args) == 1 && (some || f.limit > 0):
		return usage(c, errors.New("want SEQ, or flags that choose"))
	case len(args) == 1:
		f.Seq, err = sequence(c, args[0])
		return err
	case !some:
		return usage(c, errors.New("which dead letters? Want SEQ, --route, --since, --reason-contains or --all"))
	case f.since == "":
		return nil
	}
	since, err := moment(f.since)
	if err != nil {
		return usage(c, fmt.Errorf("--since: %w", err))
	}
	f.Since = &since
	return nil
}

// moment is a time, or how long ago it is.
func moment(s string) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is neither a time like 2026-01-31T12:00:00Z nor a duration like 2h", s)
	}
	return t, nil
}

func dlqReplayCommand(o *options) *cobra.Command {
	n := o.connection()
	var f letterFlags
	c := &cobra.Command{
		Use: "replay [SEQ]", Short: "Give dead letters again to the routes that refused them",
		Long: `replay takes the messages of dead letters in as if their streams delivered them now: with their subject, headers, body and place, by the
routes as the bridge has them now. What is taken in, or was meanwhile, leaves the dead letters. What is refused again stays, is printed with
the reason, and makes the exit status 1. It can be interrupted and run again at any time: nothing is taken in twice.`,
		Example: `  pointsman dlq replay 7
  pointsman dlq replay --route payments --since 2h --dry-run
  pointsman dlq replay --reason-contains no_target --limit 1000`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.read(c, args); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				t, err := s.walkLetters(ctx, natsapi.VerbReplay, f.LettersChoice, f.limit)
				if err := errors.Join(t.report(s, f.DryRun, "replayed"), err); err != nil || f.DryRun || t.Stay == 0 {
					return err
				}
				return fmt.Errorf("%d of %d stay in the dead letters", t.Stay, t.Total)
			})
		},
	}
	f.add(c)
	n.flag(c, "route", routeNames)
	return n.addURL(c)
}

func dlqDropCommand(o *options) *cobra.Command {
	n := o.connection()
	var f letterFlags
	yes := false
	c := &cobra.Command{
		Use: "drop [SEQ]", Short: "Delete dead letters for good",
		Long: `drop deletes dead letters: their messages will not be taken in. It counts them first, and asks; --yes answers.`,
		Example: `  pointsman dlq drop 7
  pointsman dlq drop --route payments --reason-contains "body:" --yes`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.read(c, args); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error { return s.dropLetters(ctx, c.InOrStdin(), f, yes) })
		},
	}
	f.add(c)
	n.flag(c, "route", routeNames)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return n.addURL(c)
}

func (s *session) dropLetters(ctx context.Context, in io.Reader, f letterFlags, yes bool) error {
	if f.DryRun || !yes {
		choice := f.LettersChoice
		choice.DryRun = true
		found, err := s.walkLetters(ctx, natsapi.VerbDrop, choice, f.limit)
		if err != nil || f.DryRun || found.Total == 0 {
			return errors.Join(found.report(s, true, "dropped"), err)
		}
		if err := confirm(s.errOut, in, fmt.Sprintf("Delete %d dead letters for good?", found.Total), "nothing is deleted"); err != nil {
			return err
		}
		f.limit = found.Total // none that has come since
	}
	dropped, err := s.walkLetters(ctx, natsapi.VerbDrop, f.LettersChoice, f.limit)
	return errors.Join(dropped.report(s, false, "dropped"), err)
}

// confirm asks a question that has to be answered with yes, or else nothing is done.
func confirm(out io.Writer, in io.Reader, question, nothing string) error {
	if _, err := fmt.Fprint(out, question, " [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New(nothing + ": --yes answers without asking")
	}
	return nil
}

// lettersTally is what became of many dead letters.
type lettersTally struct {
	Total   int                `json:"total"`
	Results map[string]int     `json:"results"`
	Stay    int                `json:"stay"`
	Items   []api.LetterResult `json:"items"` // of one, or those that stay, at most 1,000
}

const maxTallyItems = 1000

// walkLetters asks page by page. What it returns is true also with an error: that has been done.
func (s *session) walkLetters(ctx context.Context, verb string, choice api.LettersChoice, limit int) (lettersTally, error) {
	const step = 100
	t := lettersTally{Results: map[string]int{}, Items: []api.LetterResult{}}
	told := time.Now()
	for {
		choice.Limit = step
		if limit > 0 {
			choice.Limit = min(step, limit-t.Total)
		}
		var page api.Page[api.LetterResult]
		if err := s.ask(ctx, verb, choice, &page); err != nil {
			if t.Total > 0 {
				err = fmt.Errorf("after %d dead letters: %w\nWhat is done is done: run it again to go on", t.Total, err)
			}
			return t, err
		}
		for _, item := range page.Items {
			t.add(item, choice.Seq != 0)
		}
		if page.NextCursor == nil || limit > 0 && t.Total >= limit {
			return t, nil
		}
		choice.Cursor = *page.NextCursor
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			if _, err := fmt.Fprintf(s.errOut, "%d dead letters so far: %s\n", t.Total, t); err != nil {
				return t, err
			}
		}
	}
}

func (t *lettersTally) add(item api.LetterResult, one bool) {
	t.Total++
	t.Results[item.Result]++
	if item.Stays {
		t.Stay++
	}
	if (item.Stays || one) && len(t.Items) < maxTallyItems {
		t.Items = append(t.Items, item)
	}
}

func (t lettersTally) String() string {
	var parts []string
	for _, result := range slices.Sorted(maps.Keys(t.Results)) {
		parts = append(parts, fmt.Sprintf("%d %s", t.Results[result], result))
	}
	return strings.Join(parts, ", ")
}

func (t lettersTally) report(s *session, dry bool, done string) error {
	if s.json {
		return s.document(s.out, t)
	}
	if len(t.Items) > 0 {
		rows := newTable("SEQ", "ROUTE", "MESSAGE", "RESULT", "REASON")
		for _, item := range t.Items {
			rows.add(fmt.Sprint(item.Seq), item.Route, place(text(item.Stream), item.StreamSeq), item.Result, short(text(item.Reason), 200))
		}
		if err := s.print(s.out, rows); err != nil {
			return err
		}
	}
	if dry {
		done = "would be " + done
	}
	what := ""
	if t.Total > 0 && (len(t.Results) > 1 || t.Results[bridge.FateDropped] != t.Total) {
		what = ": " + t.String()
	}
	_, err := fmt.Fprintf(s.out, "%d dead letters %s%s\n", t.Total, done, what)
	return err
}
