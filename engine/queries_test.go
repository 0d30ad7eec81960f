package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// The examples of queries-and-updates.md, in Go.

type (
	encodeJob struct {
		ID       string   `json:"id"`
		Segments []string `json:"segments"`
		Done     int      `json:"done"`
	}
	encodeProgress struct {
		Phase string `json:"phase"`
		Pct   int    `json:"pct"`
		Done  int    `json:"done,omitempty"`
		Total int    `json:"total,omitempty"`
	}
)

// videoEncode publishes its progress after each segment, which is a step of its own.
func videoEncode(encoded chan<- string, on <-chan struct{}) (*engine.Machine, error) {
	return engine.Define(engine.Definition[encodeJob]{
		Name: "video-encode", Start: "probe",
		Steps: map[string]engine.Step[encodeJob]{
			"probe": func(ctx context.Context, v *engine.Visit[encodeJob]) (engine.Outcome, error) {
				if err := v.SetEvent(ctx, "progress", encodeProgress{Phase: "probing"}); err != nil {
					return engine.Outcome{}, err
				}
				v.State.Segments = []string{"a", "b", "c", "d"}
				return engine.Next("encode"), nil
			},
			"encode": func(_ context.Context, v *engine.Visit[encodeJob]) (engine.Outcome, error) {
				encoded <- v.State.Segments[v.State.Done]
				<-on
				v.State.Done++
				total := len(v.State.Segments)
				if v.State.Done == total {
					return engine.Done(map[string]any{"job_id": v.State.ID, "segments": total}).SetEvent("progress", encodeProgress{Phase: "done", Pct: 100}), nil
				}
				return engine.Next("encode").SetEvent("progress", encodeProgress{Phase: "encoding", Pct: v.State.Done * 100 / total, Done: v.State.Done, Total: total}), nil
			},
		},
	})
}

// jobProgress is the controller of the example.
func jobProgress(ctx context.Context, c *engine.Client, id uuid.UUID) (encodeProgress, error) {
	p, found, err := engine.Event[encodeProgress](ctx, c, engine.ByID(id), "progress")
	if err == nil && !found {
		p.Phase = "pending"
	}
	return p, err
}

func TestVideoEncode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	encoded, on := make(chan string), make(chan struct{})
	in := b.start(engine.NewInstance{Machine: "video-encode", State: engine.MustJSON(encodeJob{ID: "job-1"})})
	progress := func() string {
		t.Helper()
		return fmt.Sprint(must(jobProgress(t.Context(), b.Client, in.ID))(t))
	}
	equal(t, "before it runs", progress(), "{pending 0 0 0}")
	b.serve(must(videoEncode(encoded, on))(t))
	for i, want := range []string{"{probing 0 0 0}", "{encoding 25 1 4}", "{encoding 50 2 4}", "{encoding 75 3 4}"} {
		equal(t, "segment", receive(t, encoded), string(rune('a'+i)))
		equal(t, "progress", progress(), want)
		on <- struct{}{}
	}
	done := b.ends(in.ID, engine.StatusDone)
	equal(t, "after the end", progress(), "{done 100 0 0}")
	equal(t, "result", string(done.Result), `{"job_id": "job-1", "segments": 4}`)
}

type (
	expense struct {
		AmountCents int `json:"amount_cents"`
	}
	decision struct {
		Approved bool   `json:"approved"`
		Approver string `json:"approver"`
		Note     string `json:"note,omitempty"`
	}
	expenseStatus struct {
		State       string `json:"state"`
		By          string `json:"by,omitempty"`
		AmountCents int    `json:"amount_cents,omitempty"`
	}
)

// people who can approve expenses, or not.
var people = map[string]bool{"ann": true, "bob": false}

// expenseApproval awaits a decision, for some time, that its validator has let through.
func expenseApproval(within time.Duration, reimburse func(expense, string) error) (*engine.Machine, error) {
	return engine.Define(engine.Definition[expense]{
		Name: "expense-approval", Start: "submit",
		Steps: map[string]engine.Step[expense]{
			"submit": func(_ context.Context, v *engine.Visit[expense]) (engine.Outcome, error) {
				return engine.Await("decide").OrUpdate("decision").Within(within).
					SetEvent("status", expenseStatus{State: "awaiting-approval", AmountCents: v.State.AmountCents}), nil
			},
			"decide": func(_ context.Context, v *engine.Visit[expense]) (engine.Outcome, error) {
				if v.TimedOut {
					return engine.Stop("approval timed out").SetEvent("status", expenseStatus{State: "expired"}), nil
				}
				var d decision
				if err := v.Awaited[0].Decode(&d); err != nil {
					return engine.Outcome{}, engine.Terminal(err)
				}
				if !d.Approved {
					return engine.Done(map[string]bool{"reimbursed": false}).SetEvent("status", expenseStatus{State: "rejected", By: d.Approver}), nil
				}
				if err := reimburse(v.State, v.IdempotencyKey()); err != nil {
					return engine.Outcome{}, err
				}
				return engine.Done(map[string]bool{"reimbursed": true}).SetEvent("status", expenseStatus{State: "reimbursed", By: d.Approver}), nil
			},
		},
		Validators: map[string]engine.Validator{"decision": engine.ValidatorOf(func(_ context.Context, d decision) error {
			canApprove, known := people[d.Approver]
			switch {
			case !known:
				return engine.Refuse(fmt.Sprintf("unknown approver %q", d.Approver))
			case !canApprove:
				return engine.Refuse(d.Approver + " is not allowed to approve expenses")
			case !d.Approved && d.Note == "":
				return engine.Refuse("a rejection must include a note")
			}
			return nil
		})},
	})
}

var errBadRequest = errors.New("bad request")

// decide is the controller of the example: what it answers its own caller.
func decide(ctx context.Context, c *engine.Client, id uuid.UUID, d decision) (status engine.Status, err error) {
	res, err := c.Update(ctx, engine.ByID(id), engine.UpdateRequest{Name: "decision", Arg: engine.MustJSON(d), Wait: patience})
	switch {
	case err != nil:
		return "", err
	case !res.Accepted:
		return "", fmt.Errorf("%w: %s", errBadRequest, res.Reason)
	case res.Run == nil:
		return "pending", nil
	}
	return res.Run.Status, nil
}

func TestExpenseApproval(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var paid []int
	b.serve(must(expenseApproval(7*24*time.Hour, func(e expense, _ string) error { paid = append(paid, e.AmountCents); return nil }))(t))
	status := func(id uuid.UUID) string {
		t.Helper()
		s, _, err := engine.Event[expenseStatus](t.Context(), b.Client, engine.ByID(id), "status")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s)
	}
	submit := func(key string) engine.Instance {
		t.Helper()
		in := b.start(engine.NewInstance{Machine: "expense-approval", CorrelationKey: key, State: engine.MustJSON(expense{4200})})
		in = b.reaches(in.ID, engine.StatusAwaiting)
		equal(t, "submitted", status(in.ID), "{awaiting-approval  4200}")
		return in
	}
	first, second := submit("expense-1"), submit("expense-2")
	before := b.footprint()
	for _, c := range []struct {
		d    decision
		want string
	}{
		{decision{true, "eve", ""}, `unknown approver "eve"`},
		{decision{true, "bob", ""}, "bob is not allowed to approve expenses"},
		{decision{false, "ann", ""}, "a rejection must include a note"},
	} {
		_, err := decide(t.Context(), b.Client, first.ID, c.d)
		if !errors.Is(err, errBadRequest) {
			t.Errorf("%+v: %v", c.d, err)
		}
		contains(t, "reason", fmt.Sprint(err), c.want)
	}
	equal(t, "every row after the refusals", b.footprint(), before)
	equal(t, "approved", must(decide(t.Context(), b.Client, first.ID, decision{true, "ann", ""}))(t), engine.StatusDone)
	equal(t, "its status", status(first.ID), "{reimbursed ann 0}")
	equal(t, "paid", fmt.Sprint(paid), "[4200]")
	equal(t, "rejected", must(decide(t.Context(), b.Client, second.ID, decision{false, "ann", "no receipt"}))(t), engine.StatusDone)
	equal(t, "its status", status(second.ID), "{rejected ann 0}")
	equal(t, "its result", string(b.get(second.ID).Result), `{"reimbursed": false}`)
}

func TestExpenseApprovalExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(must(expenseApproval(10*time.Millisecond, nil))(t))
	in := b.ends(b.begin("expense-approval", "expense-3").ID, engine.StatusFailed)
	equal(t, "reason", in.LastError, "approval timed out")
	s, _, err := engine.Event[expenseStatus](t.Context(), b.Client, engine.ByID(in.ID), "status")
	equal(t, "status", fmt.Sprint(s, err), "{expired  0} <nil>")
}
