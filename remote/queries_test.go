package remote_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/remote"
)

// The examples of queries-and-updates.md, as services over NATS.

func (s *stage) event(in engine.Instance, key string) string {
	s.t.Helper()
	value, err := s.Event(s.t.Context(), in.ID, key)
	s.must(err)
	return strings.ReplaceAll(string(value), " ", "")
}

// answers serves the steps of a machine with a function of the request.
func answers(t testing.TB, nc *nats.Conn, machine string, with func(r enginetest.Request) string) {
	t.Helper()
	answer(t, nc, machine, func(m *nats.Msg) *nats.Msg {
		var r enginetest.Request
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		return says(with(r))(m)
	})
}

// A long job is cut into steps: what each answers with commits with it, and shows how far it is.
func TestVideoEncode(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	asked, on := make(chan string), make(chan struct{})
	answers(t, nc, "video-encode", func(r enginetest.Request) string {
		if r.Step == "probe" {
			return `{"outcome": "next", "step": "encode", "state": {"done": 0, "total": 4}, "set_events": {"progress": {"phase": "probing", "pct": 0}}}`
		}
		var state struct{ Done, Total int }
		if err := json.Unmarshal(r.State, &state); err != nil {
			return fmt.Sprintf(`{"error": %q}`, err)
		}
		asked <- fmt.Sprint(state.Done)
		<-on
		if state.Done++; state.Done == state.Total {
			return fmt.Sprintf(`{"outcome": "done", "result": {"segments": %d}, "set_events": {"progress": {"phase": "done", "pct": 100}}}`, state.Total)
		}
		return fmt.Sprintf(`{"outcome": "next", "state": {"done": %d, "total": 4}, "set_events": {"progress": {"phase": "encoding", "pct": %d}}}`, state.Done, state.Done*100/state.Total)
	})
	cfg := config(t, nc)
	cfg.Name, cfg.Start = "video-encode", "probe"
	s.work(machine(t, cfg))
	in := engine.Instance{ID: s.begin(engine.NewInstance{Machine: "video-encode"})}
	for i, want := range []string{`{"pct":0,"phase":"probing"}`, `{"pct":25,"phase":"encoding"}`, `{"pct":50,"phase":"encoding"}`, `{"pct":75,"phase":"encoding"}`} {
		equal(t, "segment", receive(t, asked), i)
		equal(t, "progress", s.event(in, "progress"), want)
		on <- struct{}{}
	}
	s.ends(in.ID, engine.StatusDone)
	equal(t, "after the end", s.event(in, "progress"), `{"pct":100,"phase":"done"}`)
}

// An approval whose steps and whose validator are services.
func TestExpenseApproval(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	answers(t, nc, "expense-approval", func(r enginetest.Request) string {
		switch {
		case r.Step == "submit":
			return fmt.Sprintf(`{"outcome": "await", "updates": ["decision"], "timeout_ms": %s, "step": "decide", "set_events": {"status": {"state": "awaiting-approval"}}}`, r.State)
		case r.TimedOut:
			return `{"outcome": "stop", "reason": "approval timed out", "set_events": {"status": {"state": "expired"}}}`
		case strings.Contains(string(r.Awaited[0].Payload), `"approved":false`):
			return `{"outcome": "done", "result": {"reimbursed": false}, "set_events": {"status": {"state": "rejected"}}}`
		}
		return `{"outcome": "done", "result": {"reimbursed": true}, "set_events": {"status": {"state": "reimbursed"}}}`
	})
	validates(t, nc, "pointsman.validate.expense-approval.decision", func(m *nats.Msg) *nats.Msg {
		var d struct {
			Approved       bool
			Approver, Note string
		}
		reason := ""
		if err := json.Unmarshal(m.Data, &d); err != nil {
			reason = err.Error()
		} else if d.Approver != "ann" {
			reason = fmt.Sprintf("unknown approver %q", d.Approver)
		} else if !d.Approved && d.Note == "" {
			reason = "a rejection must include a note"
		}
		return &nats.Msg{Data: encode(t, map[string]string{"reason": reason})}
	})
	s.must(s.Validate("expense-approval", "decision", remote.Validator(nc, config(t, nc).Subjects, "expense-approval", "decision", patience)))
	cfg := config(t, nc)
	cfg.Name, cfg.Start = "expense-approval", "submit"
	s.work(machine(t, cfg))
	submit := func(millis string) engine.Instance {
		t.Helper()
		return engine.Instance{ID: s.begin(engine.NewInstance{Machine: "expense-approval", State: json.RawMessage(millis)})}
	}
	decide := func(in engine.Instance, arg string) string {
		t.Helper()
		res, err := s.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "decision", Arg: json.RawMessage(arg), Wait: patience})
		s.must(err)
		if !res.Accepted {
			return res.Reason
		}
		return string(res.Run.Status)
	}
	const week = "604800000"
	first, second, late := submit(week), submit(week), submit("20")
	s.until(first.ID, "awaits", func(in engine.Instance) bool { return fmt.Sprint(in.Awaits) == "[decision]" })
	equal(t, "submitted", s.event(first, "status"), `{"state":"awaiting-approval"}`)
	equal(t, "a stranger", decide(first, `{"approved": true, "approver": "eve"}`), `unknown approver "eve"`)
	equal(t, "no note", decide(first, `{"approved": false, "approver": "ann"}`), "a rejection must include a note")
	equal(t, "approved", decide(first, `{"approved": true, "approver": "ann"}`), engine.StatusDone)
	equal(t, "its status", s.event(first, "status"), `{"state":"reimbursed"}`)
	equal(t, "rejected", decide(second, `{"approved": false, "approver": "ann", "note": "no receipt"}`), engine.StatusDone)
	equal(t, "its status", s.event(second, "status"), `{"state":"rejected"}`)
	equal(t, "reason", s.ends(late.ID, engine.StatusFailed).LastError, "approval timed out")
	equal(t, "its status", s.event(late, "status"), `{"state":"expired"}`)
}
