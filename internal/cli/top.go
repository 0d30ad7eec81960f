package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func topCommand(o *options) *cobra.Command {
	n := o.connection()
	every := defaultEvery
	c := &cobra.Command{
		Use: "top", Short: "Watch routes, queues and workers",
		Long: `top shows the routes with what waits and how many messages a second they ack, the queues, the workers, and the counts of the project's instances,
and asks again every second. q ends it. Where the output is no terminal, or a dumb one, the same is printed again and again; with --json, as
one document in a line.`,
		Example: "  pointsman top\n  pointsman top --every 5s\n  pointsman top --url https://bridge.example.com",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if every < leastEvery {
				return usage(c, fmt.Errorf("--every %s: want %s or more", every, leastEvery))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				if s.json || !interactive(s.out) {
					return s.topLines(ctx, every)
				}
				_, err := tea.NewProgram(newTop(ctx, s.overview, s.at, every), tea.WithContext(ctx), tea.WithOutput(s.out), tea.WithInput(c.InOrStdin())).Run()
				if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
					return nil
				}
				return err
			})
		},
	}
	c.Flags().DurationVar(&every, "every", defaultEvery, "how often to ask")
	return n.add(c)
}

// interactive says that there is a terminal that can be drawn on.
func interactive(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && cwriter.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// overview is all that top shows, of one moment.
type overview struct {
	At      time.Time    `json:"at"`
	Stats   api.Stats    `json:"stats"`
	Routes  []routeRate  `json:"routes"`
	Queues  []api.Queue  `json:"queues"`
	Workers []api.Worker `json:"workers"`
}

// routeRate is a route with its speed. PerSecond is null in the first overview, and where the consumer cannot be asked.
type routeRate struct {
	api.Route
	PerSecond *float64 `json:"acked_per_second"`
}

// overview asks for one.
func (s *session) overview(ctx context.Context) (v overview, err error) {
	if v.Stats, err = s.stats(ctx); err != nil {
		return v, err
	}
	routes, err := s.routes(ctx)
	if err != nil {
		return v, err
	}
	v.At, v.Routes = time.Now().UTC(), make([]routeRate, len(routes.Items))
	for i, r := range routes.Items {
		v.Routes[i].Route = r
	}
	all := paging{limit: 10 * api.MaxLimit}
	queues, err := named[api.Queue](ctx, s, natsapi.VerbQueues, all)
	if err != nil {
		return v, err
	}
	workers, err := named[api.Worker](ctx, s, natsapi.VerbWorkers, all)
	v.Queues, v.Workers = queues.Items, workers.Items
	return v, err
}

// since works out the speeds, by what was seen before. A floor that went back is a consumer that was made again.
func (v overview) since(before overview) {
	floors := map[string]uint64{}
	for _, r := range before.Routes {
		if r.AckFloor != nil {
			floors[r.Name] = *r.AckFloor
		}
	}
	passed := v.At.Sub(before.At).Seconds()
	for i, r := range v.Routes {
		floor, seen := floors[r.Name]
		if seen && r.AckFloor != nil && *r.AckFloor >= floor && passed > 0 {
			rate := float64(*r.AckFloor-floor) / passed
			v.Routes[i].PerSecond = &rate
		}
	}
}

// String is the overview as it is read.
func (v overview) String() string {
	routes := newTable("ROUTE", "STREAM", "LAG", "ACK PENDING", "ACKED/S", "PAUSED BY", "TROUBLE")
	for _, r := range v.Routes {
		rate := ""
		if r.PerSecond != nil {
			rate = fmt.Sprintf("%.1f", *r.PerSecond)
		}
		routes.add(r.Name, r.Stream, text(r.Lag), text(r.AckPending), rate, strings.Join(r.PausedBy, ", "), short(text(r.Trouble), 60))
	}
	var counts []string
	for _, status := range statuses {
		counts = append(counts, fmt.Sprintf("%s %d", status, v.Stats.Instances[status]))
	}
	if v.Stats.AtLeast {
		counts = append(counts, "or more")
	}
	ended := 0
	for _, n := range v.Stats.EndedLastMinute {
		ended += n
	}
	return fmt.Sprintf("%s: %s; %d ended in the last minute\n\n%s\n%s\n%s", oneLine(v.Stats.Project), strings.Join(counts, ", "), ended,
		routes, queuesTable(v.Queues), workersTable(v.Workers))
}

// topLines prints one overview after another.
func (s *session) topLines(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for before := (overview{}); ; {
		v, err := s.overview(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		v.since(before)
		if before = v; s.json {
			err = s.another(s.out, v)
		} else {
			_, err = fmt.Fprintf(s.out, "%s  %s\n%s\n", clock(v.At), s.at, v)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// top is what is drawn on a terminal.
type top struct {
	ctx     context.Context //nolint:containedctx // the library's model has no other way
	fetch   func(context.Context) (overview, error)
	at      string
	every   time.Duration
	seen    overview
	trouble error // of the last attempt; what was seen before stays
	width   int   // 0: not known yet
	height  int
}

func newTop(ctx context.Context, fetch func(context.Context) (overview, error), at string, every time.Duration) top {
	return top{ctx: ctx, fetch: fetch, at: at, every: every}
}

// looked is what came of asking.
type looked struct {
	overview
	err error
}

// again says that it is time to ask.
type again struct{}

func (t top) look() tea.Msg {
	v, err := t.fetch(t.ctx)
	return looked{v, err}
}

// Init asks for the first time.
func (t top) Init() tea.Cmd { return t.look }

// Update takes a key, a size, an answer, or the time.
func (t top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return t, tea.Quit
		}
	case tea.WindowSizeMsg:
		t.width, t.height = msg.Width, msg.Height
	case looked:
		if t.trouble = msg.err; msg.err == nil {
			msg.since(t.seen)
			t.seen = msg.overview
		}
		return t, tea.Tick(t.every, func(time.Time) tea.Msg { return again{} })
	case again:
		return t, t.look
	}
	return t, nil
}

// View is the screen: what does not fit is left out.
func (t top) View() tea.View {
	var b strings.Builder
	fmt.Fprintf(&b, "pointsman top  %s  ", t.at)
	switch {
	case t.trouble != nil:
		b.WriteString("no answer: " + oneLine(t.trouble.Error()))
	case t.seen.At.IsZero():
		b.WriteString("asking…")
	default:
		b.WriteString(clock(t.seen.At))
	}
	b.WriteString("  q quits\n\n")
	if !t.seen.At.IsZero() {
		b.WriteString(t.seen.String())
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if t.height > 0 && len(lines) > t.height {
		lines = append(lines[:t.height-1], "…")
	}
	for i, line := range lines {
		if t.width > 1 {
			lines[i] = short(line, t.width)
		}
	}
	view := tea.NewView(strings.Join(lines, "\n"))
	view.AltScreen = true
	return view
}
