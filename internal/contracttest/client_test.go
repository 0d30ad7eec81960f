package contracttest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/apptest"
)

// What package client has beside what the suite asks all surfaces for.
func testClient(t *testing.T, stack *apptest.Stack) {
	c := newHTTP(t, stack).(overHTTP).Client
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	_, err := c.CreateTrigger(t.Context(), client.NewTrigger{EventKey: "client/watched %"})
	no(err)
	var seen []engine.TriggerStatus
	for g, err := range c.WatchTrigger(t.Context(), "client/watched %") {
		no(err)
		if seen = append(seen, g.Status); len(seen) == 1 {
			_, err = c.SendEvent(t.Context(), "client/watched %", map[string]bool{"yes": true}, 0)
			no(err)
		}
	}
	if fmt.Sprint(seen) != "[waiting received]" {
		t.Errorf("seen %v", seen)
	}
	for _, err := range c.WatchTrigger(t.Context(), "client/unknown") {
		if client.Code(err) != client.CodeNotFound {
			t.Errorf("a watch of nothing: %v", err)
		}
	}
	_, err = c.PurgeTriggers(t.Context(), 1, true)
	no(err)

	stats, err := c.Stats(t.Context())
	no(err)
	if stats.Project != engine.DefaultProject || stats.Instances == nil {
		t.Errorf("stats %+v", stats)
	}
	apptest.Eventually(t, "a worker serves a queue", func() (bool, error) {
		workers, err := c.Workers(t.Context(), "")
		if err != nil || len(workers.Items) != 1 {
			return false, fmt.Errorf("workers %+v: %w", workers, err)
		}
		queues, err := c.Queues(t.Context(), "")
		return err == nil && len(queues.Items) > 0, fmt.Errorf("queues %+v: %w", queues, err)
	})
	held, err := c.Held(t.Context(), client.HeldFilter{CorrelationKey: "nobody"})
	if no(err); len(held.Items) != 0 {
		t.Errorf("held %+v", held)
	}
	webhooks, err := c.Webhooks(t.Context(), client.WebhookFilter{Status: "failed"})
	if no(err); len(webhooks.Items) != 0 {
		t.Errorf("webhooks %+v", webhooks)
	}
	const unknown = "00000001-0000-7000-8000-000000000000"
	_, err = c.Webhook(t.Context(), unknown)
	if client.Code(err) != client.CodeNotFound {
		t.Errorf("a webhook that is not there: %v", err)
	}
	if _, err = c.RetryWebhook(t.Context(), unknown); client.Code(err) != client.CodeNotFound {
		t.Errorf("a retry of a webhook that is not there: %v", err)
	}
	results, err := c.RetryWebhooks(t.Context(), []string{unknown})
	if no(err); len(results) != 1 || results[0].Error == nil {
		t.Errorf("retries %+v", results)
	}

	route := routeOf("Go", "calls") // no other test uses it: it is that of the surface without routes
	first := stack.Publish(t, route+".client", `{"n": 1}`)
	apptest.Eventually(t, "a dead letter", func() (bool, error) {
		fate, err := c.Message(t.Context(), client.MessageRef{Stream: first.Stream, Seq: first.Sequence})
		return fate.Fate == "dead-lettered", fmt.Errorf("%s: %w", fate.Fate, err)
	})
	tests, err := c.TestRoutes(t.Context(), client.TestMessage{Subject: route + ".client", Headers: map[string]client.HeaderValue{"A": {"b"}}, Data: json.RawMessage(`{}`)})
	if no(err); len(tests) != 1 || tests[0].Route != route || *tests[0].Result != "dead-lettered" {
		t.Errorf("tests %+v", tests)
	}
	tried, err := c.ReplayDeadLetters(t.Context(), client.DeadLetterChoice{Route: route, DryRun: true})
	if no(err); len(tried.Items) != 1 || !tried.Items[0].Stays {
		t.Errorf("tried %+v", tried)
	}
	counts, err := c.RewindDryRun(t.Context(), client.Rewind{Name: route, ToSeq: first.Sequence})
	if no(err); counts.Total < 1 || counts.Dead < 1 {
		t.Errorf("dry run %+v", counts)
	}
	done, err := c.RewindRoute(t.Context(), client.Rewind{Name: route, ToSeq: first.Sequence})
	if no(err); done.Name != route || done.FromSeq != first.Sequence {
		t.Errorf("rewound %+v", done)
	}
	dropped, err := c.DropDeadLetters(t.Context(), client.DeadLetterChoice{Route: route})
	if no(err); len(dropped.Items) != 1 || dropped.Items[0].Result != "dropped" {
		t.Errorf("dropped %+v", dropped)
	}

	in, err := c.Start(t.Context(), client.NewInstance{Machine: "parent", CorrelationKey: "client-parent"})
	no(err)
	apptest.Eventually(t, "two children", func() (bool, error) {
		page, err := c.Children(t.Context(), client.ParseRef(in.ID), "")
		return len(page.Items) == 2, fmt.Errorf("there are %d: %w", len(page.Items), err)
	})
	if in, err = c.CancelAll(t.Context(), client.ParseRef(in.ID), "enough"); in.Status != engine.StatusCanceled {
		t.Errorf("canceled %s: %v", in.Status, err)
	}
	for _, key := range []string{"client-parent1", "client-parent2"} {
		if child, err := c.Get(t.Context(), client.ByKey(key)); child.Status != engine.StatusCanceled {
			t.Errorf("child %s: %v", child.Status, err)
		}
	}
	later, err := c.Start(t.Context(), client.NewInstance{Machine: "visitor"})
	no(err)
	begun := time.Now()
	verdict, err := c.Update(t.Context(), client.ParseRef(later.ID), client.NewUpdate{Name: "later", Wait: 10 * time.Millisecond})
	if no(err); !verdict.Accepted || verdict.Run != nil || time.Since(begun) < 10*time.Millisecond {
		t.Errorf("verdict %+v", verdict)
	}
}
