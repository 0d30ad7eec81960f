package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pointsman/pointsman/internal/api"
)

func overviewAt(second int, floor uint64) overview {
	lag := uint64(7)
	return overview{
		At:      time.Date(2030, 1, 2, 3, 4, second, 0, time.UTC),
		Stats:   api.Stats{Project: "shop"},
		Routes:  []routeRate{{Route: api.Route{RoutePause: api.RoutePause{Name: "payments"}, Stream: "PAYMENTS", Lag: &lag, AckFloor: &floor}}},
		Queues:  []api.Queue{{Name: "default", Depth: 3, OldestSeconds: 1.5, Workers: 1, Slots: 10}},
		Workers: []api.Worker{{Name: "worker-1", Alive: true, Queues: map[string]int{"default": 10}}},
	}
}

// What is drawn: the first answer, then speeds, trouble beside what was seen, and no more than fits.
func TestTop(t *testing.T) {
	t.Parallel()
	answers := []looked{{overview: overviewAt(0, 100)}, {overview: overviewAt(2, 150)}, {err: errors.New("the bridge is gone")}, {overview: overviewAt(4, 10)}}
	fetch := func(context.Context) (overview, error) {
		next := answers[0]
		answers = answers[1:]
		return next.overview, next.err
	}
	var model tea.Model = newTop(t.Context(), fetch, "nats://here", time.Hour)
	shows := func(want ...string) {
		t.Helper()
		screen := model.View().Content
		for _, text := range want {
			if !strings.Contains(screen, text) {
				t.Errorf("%q is not on the screen:\n%s", text, screen)
			}
		}
	}
	send := func(msg tea.Msg) (cmd tea.Cmd) {
		model, cmd = model.Update(msg)
		return cmd
	}
	shows("nats://here", "asking…", "q quits")
	send(model.Init()())
	shows("2030-01-02T03:04:00Z", "payments", "default  3      1.5s", "worker-1", "shop: runnable 0")
	if strings.Contains(model.View().Content, "25.0") {
		t.Error("there is a speed before there is one")
	}
	if send(send(again{})()) == nil {
		t.Error("it does not ask again after an answer")
	}
	shows("25.0")
	if send(send(again{})()) == nil {
		t.Error("it does not ask again after an error")
	}
	shows("no answer: the bridge is gone", "25.0", "payments")
	send(send(again{})())
	if model.(top).seen.Routes[0].PerSecond != nil {
		t.Error("a consumer that was made again has a speed")
	}
	send(tea.WindowSizeMsg{Width: 20, Height: 5})
	screen := strings.Split(model.View().Content, "\n")
	if len(screen) != 5 || screen[4] != "…" {
		t.Errorf("it does not fit: %q", screen)
	}
	for _, line := range screen {
		if len([]rune(line)) > 20 {
			t.Errorf("it does not fit: %q", line)
		}
	}
	if cmd := send(tea.KeyPressMsg{Code: 'x', Text: "x"}); cmd != nil {
		t.Error("x does something")
	}
	if cmd := send(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not quit")
	} else if _, quits := cmd().(tea.QuitMsg); !quits {
		t.Error("q does not quit")
	}
}

// On a terminal the program draws, and ends with q.
func TestTopProgram(t *testing.T) {
	t.Parallel()
	// The ticks of the library end by themselves only: a short one leaves no goroutine.
	var out strings.Builder
	fetch := func(context.Context) (overview, error) { return overviewAt(0, 100), nil }
	program := tea.NewProgram(newTop(t.Context(), fetch, "nats://here", 100*time.Millisecond), tea.WithContext(t.Context()), tea.WithInput(strings.NewReader("q")), tea.WithOutput(&out),
		tea.WithWindowSize(120, 40), tea.WithoutSignals())
	if _, err := program.Run(); err != nil {
		t.Fatal(err)
	}
}
