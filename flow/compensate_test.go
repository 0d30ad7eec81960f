package flow_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

const trip = `
flows:
  - name: trip
    timeout: 24h
    steps:
      - {ref: hotel, type: call, subject: hotel.book, compensate: {type: call, subject: hotel.cancel, data: {room: "{{steps.hotel.output.room}}"}, retry: {max_attempts: 2, initial: 1m}}}
      - {ref: flight, type: call, subject: flight.book, depends_on: [hotel], compensate: {type: call, subject: flight.cancel, data: "{{steps.flight.output}}"}}
      - {ref: told, type: publish, subject: told, data: 1, depends_on: [flight], compensate: {type: publish, subject: untold, data: "{{payload.who}}"}}
      - {ref: note, type: set_event, key: state, value: booked, depends_on: [told], compensate: {type: set_event, key: state, value: undone}}
      - {ref: log, type: call, subject: log, depends_on: [note]}
      - {ref: pay, type: call, subject: pay, retry: {max_attempts: 1}, depends_on: [log], compensate: {type: call, subject: pay.back}}
`

// tripServices count, and fail as they are told.
func tripServices(t *testing.T) (s *services, payable, cancelable *atomic.Bool) {
	t.Helper()
	s = newServices(t)
	payable, cancelable = &atomic.Bool{}, &atomic.Bool{}
	cancelable.Store(true)
	s.answer("hotel.book", says(map[string]int{"room": 7}))
	s.answer("flight.book", says("F1"))
	s.answer("log", says(nil))
	s.answer("flight.cancel", says(nil))
	s.answer("pay.back", says(nil))
	s.answer("pay", func(json.RawMessage) (any, error) {
		if payable.Load() {
			return "paid", nil
		}
		return nil, errDeclined
	})
	s.answer("hotel.cancel", func(json.RawMessage) (any, error) {
		if cancelable.Load() {
			return nil, nil
		}
		return nil, errDeclined
	})
	return s, payable, cancelable
}

// asked are the calls in their order, with their keys.
func (s *services) asked(in *enginetest.Instance) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.made {
		all = append(all, c.subject+" "+c.key[len(in.ID.String()):])
	}
	return all
}

// A flow that fails is undone in the reverse order, and a retry runs what was undone again, with keys of its own.
func TestCompensation(t *testing.T) {
	t.Parallel()
	s, payable, _ := tripServices(t)
	env := enginetest.New(t, machines(t, s.conn, trip)...)
	in := start(env, "trip", `{"who": "Ada"}`)
	env.Drain()
	in.ExpectFailed(`step "pay": declined`)
	forth := []string{"hotel.book /hotel", "flight.book /flight", "log /log", "pay /pay"}
	back := []string{"flight.cancel /flight/compensate", "hotel.cancel /hotel/compensate"}
	equal(t, "asked", s.asked(in), append(forth, back...))
	same(t, "data", json.RawMessage(s.calls("hotel.cancel")[0].data), `{"room": 7}`)
	var sent []string
	for _, p := range env.Published() {
		if p.Subject == "told" || p.Subject == "untold" {
			sent = append(sent, p.Subject+" "+string(p.Body))
		}
	}
	equal(t, "sent", sent, []string{"told 1", `untold "Ada"`})
	values, err := env.Client.Events(t.Context(), in.ID)
	equal(t, "event", fmt.Sprintf("%s %v", values["state"], err), `"undone" <nil>`)
	equal(t, "state", fmt.Sprint(compensations(t, in)), fmt.Sprint(map[string]string{"hotel": "done", "flight": "done", "told": "done", "note": "done"}))

	payable.Store(true)
	if _, err := env.Client.Retry(t.Context(), engine.ByID(in.ID)); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	same(t, "result", done(in), `{"pay": "paid"}`)
	again := []string{"hotel.book /hotel:2", "flight.book /flight:2", "pay /pay"}
	got := s.asked(in)[len(forth)+len(back):]
	equal(t, "asked again", len(got), len(again))
	for _, want := range again { // what was undone runs beside the step that had failed, as they do not depend on each other any more
		equal(t, want, count(got, want), 1)
	}
}

func count(all []string, want string) (n int) {
	for _, s := range all {
		if s == want {
			n++
		}
	}
	return n
}

// compensations are the statuses of them.
func compensations(t *testing.T, in *enginetest.Instance) map[string]string {
	t.Helper()
	var state struct {
		Steps map[string]struct {
			Compensation struct{ Status, Error string }
		}
	}
	if err := json.Unmarshal(in.Get().State, &state); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for ref, s := range state.Steps {
		if s.Compensation.Status != "" {
			all[ref] = s.Compensation.Status + s.Compensation.Error
		}
	}
	return all
}

// A compensation that fails keeps no other from running, and the failure of the flow says so. Its step counts as done when the flow is retried.
func TestCompensationThatFails(t *testing.T) {
	t.Parallel()
	s, payable, cancelable := tripServices(t)
	cancelable.Store(false)
	env := enginetest.New(t, machines(t, s.conn, replace(trip, "subject: flight.cancel, data: \"{{steps.flight.output}}\"", "subject: flight.cancel, data: \"{{payload.missing}}\""))...)
	in := start(env, "trip", `{"who": "Ada"}`)
	env.Drain()
	in.Expect(engine.StatusAwaiting) // the hotel is tried again in a minute
	env.Advance(2 * time.Minute)
	in.ExpectFailed(`step "pay": declined; step "hotel" is not undone: declined; step "flight" is not undone: data: payload.missing: no such field`)
	equal(t, "tries", len(s.calls("hotel.cancel")), 2)
	equal(t, "state", fmt.Sprint(compensations(t, in)), fmt.Sprint(map[string]string{"hotel": "faileddeclined", "flight": "faileddata: payload.missing: no such field", "told": "done", "note": "done"}))
	cancelable.Store(true)
	if _, err := env.Client.Retry(t.Context(), engine.ByID(in.ID)); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	in.ExpectFailed(`step "pay": declined; step "flight" is not undone: data: payload.missing: no such field`)
	equal(t, "booked", len(s.calls("hotel.book")), 1)
	equal(t, "undone", s.calls("hotel.cancel")[2].key, in.ID.String()+"/hotel/compensate")
	payable.Store(true)
	if _, err := env.Client.Retry(t.Context(), engine.ByID(in.ID)); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	same(t, "result", done(in), `{"pay": "paid"}`)
	equal(t, "booked", fmt.Sprint(len(s.calls("hotel.book")), s.calls("hotel.book")[1].key == in.ID.String()+"/hotel:2"), "2 true")
}

// What runs is waited for before anything is undone; a time limit undoes too; a cancel does not.
func TestCompensationOfWhatRuns(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("book", says(1))
	s.answer("back", says(1))
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: f
    timeout: 1h
    steps:
      - {ref: child, type: start, machine: slow, wait: true, compensate: {type: start, machine: undo, state: {of: "{{steps.child.output.nap}}"}, wait: true}}
      - {ref: book, type: call, subject: book, compensate: {type: call, subject: back}}
      - {ref: go, type: wait_for_signal, signal: go, depends_on: [book]}
      - {ref: bad, type: set_event, key: k, value: "{{payload.missing}}", depends_on: [go]}
  - name: slow
    steps: [{ref: nap, type: sleep, sleep_duration: 10m}]
  - name: undo
    steps:
      - {ref: nap, type: sleep, sleep_duration: 10m, depends_on: [say]}
      - {ref: say, type: set_event, key: k, value: "{{payload}}"}
`)...)
	in, late, canceled := start(env, "f", `{}`), start(env, "f", `{}`), start(env, "f", `{}`)
	env.Drain()
	if _, err := env.Client.Cancel(t.Context(), engine.ByID(canceled.ID), "a test"); err != nil {
		t.Fatal(err)
	}
	in.Signal("go", 1)
	env.Drain()
	equal(t, "not yet", len(s.calls("back")), 0)
	env.Advance(11 * time.Minute) // the child, which was done last, is undone by another
	in.Expect(engine.StatusAwaiting)
	equal(t, "not yet", fmt.Sprintf("%d %s", len(s.calls("back")), in.Get().Step), "0 child:compensate")
	env.Advance(11 * time.Minute)
	in.ExpectFailed(`step "bad": value: payload.missing: no such field`)
	equal(t, "undone", s.calls("back")[0].key, in.ID.String()+"/book/compensate")
	env.Advance(time.Hour)
	late.ExpectFailed("the time limit of the flow, 1h0m0s, is over")
	equal(t, "undone", len(s.calls("back")), 2)
	equal(t, "instances of undo", len(env.Instances("undo")), 2)
	canceled.Expect(engine.StatusCanceled)
}
