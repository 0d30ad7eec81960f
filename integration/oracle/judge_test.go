package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// world is an account in the making: one instance, that was started, parked, was handed a signal of a lane too early to go on, another, and
// ended; a start that was refused, two events with one dedup key, a message that nobody could read, and one that was filtered.
type world struct {
	records  []Record
	outcomes []Outcome
	letters  []Letter
	stored   []Stored
	answers  map[string]Answer
	values   map[string]string
	parked   []Parked
	missing  map[string]string // publications that left the outbox, and what a bridge was told of them
	found    []string
	again    []Record // published once more, with the id that they had
}

const second = int64(time.Second)

func sound() *world {
	w := &world{answers: map[string]Answer{"asked": {Instance: "i2"}, "refused": {}}, values: map[string]string{"k1": "l4"}}
	w.records = []Record{
		{Instance: "i1", Key: "k1", Seq: 1, Link: "l1", Start: "start", Awaits: []string{"a"}, Began: 1, Stopped: 2},
		{Instance: "i1", Key: "k1", Seq: 2, Prev: "l1", Link: "l2", Start: "start", Got: 1, Handed: 7, Awaits: []string{"a"}, Within: second, Began: 3, Stopped: 4},
		{Instance: "i1", Key: "k1", Seq: 3, Prev: "l2", Link: "l3", Start: "start", TimedOut: true, Got: 1, Handed: 7, Awaits: []string{"a"}, Began: 5 + second, Stopped: 6 + second},
		{Instance: "i1", Key: "k1", Seq: 4, Prev: "l3", Link: "l4", Start: "start", Got: 2, Handed: 9, Began: 7 + second, Stopped: 8 + second, Ends: true, Consumed: []Seen{{7, "a", "first"}, {8, "a", "one"}, {9, "a", "second"}}},
		{Instance: "i2", Key: "k2", Seq: 1, Link: "m1", Start: "asked", Lane: "p", Unique: "u", Began: 1, Stopped: 2},
		{Instance: "i2", Key: "k2", Seq: 2, Prev: "m1", Link: "m2", Start: "asked", Lane: "p", Unique: "u", Began: 3, Stopped: 4, Ends: true},
		{Instance: "i3", Key: "k3", Seq: 1, Link: "n1", Start: "inner", Lane: "p", Unique: "u", Began: 5, Stopped: 6, Ends: true},
	}
	for instance, link := range map[string]string{"i1": "l4", "i2": "m2", "i3": "n1"} {
		w.outcomes = append(w.outcomes, Outcome{MsgID: "end of " + instance, Instance: instance, Status: "done", Link: link})
	}
	for n, event := range []string{"start", "first", "second", "one", "other", "poison", "filtered", "start", "first"} {
		w.stored = append(w.stored, Stored{Stream: "S", Seq: uint64(n + 1), Event: event})
	}
	w.letters = []Letter{{MsgID: "d1", Event: "poison", Place: "S:6"}, {MsgID: "d2", Event: "other", Place: "S:5"}}
	return w
}

func (w *world) record(seq int) *Record { return &w.records[seq-1] }

func (w *world) judge(t *testing.T) []Violation {
	t.Helper()
	a := NewAccount()
	for _, e := range []Event{
		{ID: "start", Key: "k1", Want: Starts},
		{ID: "first", Key: "k1", Name: "a", Lane: "lane"},
		{ID: "second", Key: "k1", Name: "a", Lane: "lane"},
		{ID: "one", Key: "k1", Name: "a", Rival: "r"},
		{ID: "other", Key: "k1", Name: "a", Rival: "r"},
		{ID: "poison", Want: Dead},
		{ID: "filtered", Want: Filtered},
		{ID: "asked", Key: "k2", Want: Asked},
		{ID: "refused", Key: "k4", Want: Asked},
		{ID: "inner", Key: "k3", Want: Starts, Internal: true},
	} {
		a.Expect(e)
	}
	a.Acked("first")
	for i, r := range w.records {
		w.publish(t, a, fmt.Sprintf("%s:%d:%d", r.Instance, r.Seq, i), r)
	}
	for i, r := range w.again {
		w.publish(t, a, fmt.Sprintf("%s:%d:%d", r.Instance, r.Seq, i), r)
	}
	for _, o := range w.outcomes {
		a.Outcome(o)
	}
	for _, l := range w.letters {
		a.Letter(l)
	}
	for _, s := range w.stored {
		a.Store(s)
	}
	for event, answer := range w.answers {
		a.Answered(event, answer)
	}
	for key, link := range w.values {
		a.Value(key, link)
	}
	for id, told := range w.missing {
		a.Missing(id, "a record")
		if told != "" {
			a.Told(id, told)
		}
	}
	for _, id := range w.found {
		a.Found(id)
	}
	return a.Judge(w.parked)
}

func (w *world) publish(t *testing.T, a *Account, id string, r Record) {
	t.Helper()
	body, err := json.Marshal(r)
	if err == nil {
		err = a.Record(id, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	if vs := sound().judge(t); len(vs) != 0 {
		t.Fatalf("a sound account is wrong: %v", vs)
	}
	again := sound()
	again.again, again.outcomes, again.letters = again.records[:2], append(again.outcomes, again.outcomes[0]), append(again.letters, again.letters[0])
	if vs := again.judge(t); len(vs) != 0 {
		t.Fatalf("what is published once more with its id is wrong: %v", vs)
	}
	late := sound()
	late.missing, late.found = map[string]string{"r1": ""}, []string{"r1"}
	if vs := late.judge(t); len(vs) != 0 {
		t.Fatalf("what is found later is missing: %v", vs)
	}
	for name, c := range map[string]struct {
		want   Kind
		change func(w *world)
	}{
		"a signal is dropped":       {Lost, func(w *world) { w.record(4).Consumed = w.record(4).Consumed[1:] }},
		"a start is dropped":        {Lost, func(w *world) { w.records, w.outcomes, w.values = w.records[4:], drop(w.outcomes, "i1"), nil }},
		"an inner start is dropped": {Lost, func(w *world) { w.records, w.outcomes = w.records[:6], drop(w.outcomes, "i3") }},
		"an answered start is lost": {Lost, func(w *world) { w.records, w.outcomes = slices.Delete(w.records, 4, 6), drop(w.outcomes, "i2") }},
		"a letter is lost":          {Lost, func(w *world) { w.letters = w.letters[1:] }},
		"a conflict is forgotten":   {Lost, func(w *world) { w.letters = w.letters[:1] }},
		"a stream lost it":          {Vanished, func(w *world) { w.stored = []Stored{w.stored[0]}; w.letters = nil; w.record(4).Consumed = nil }},
		"a stream lost a record":    {Vanished, func(w *world) { w.missing = map[string]string{"r1": "stream=RECORDS sequence=1"} }},
		"a record is not published": {Untold, func(w *world) { w.missing = map[string]string{"r1": ""} }},
		"consumed twice":            {Doubled, func(w *world) { w.record(3).Consumed = []Seen{{7, "a", "first"}} }},
		"twice in one step":         {Doubled, func(w *world) { w.record(4).Consumed = append(w.record(4).Consumed, Seen{10, "a", "first"}) }},
		"both rivals counted": {Doubled, func(w *world) {
			w.letters = w.letters[:1]
			w.record(4).Consumed = append(w.record(4).Consumed, Seen{10, "a", "other"})
		}},
		"two instances of one start": {Doubled, func(w *world) { w.records[6].Start = "asked"; w.records[6].Key = "k2" }},
		"two instances of one key":   {Doubled, func(w *world) { w.records[6].Key, w.records[6].Start = "k1", "" }},
		"for another":                {Unexpected, func(w *world) { w.records[6].Consumed, w.record(4).Consumed = w.record(4).Consumed, nil }},
		"under another name":         {Unexpected, func(w *world) { w.record(4).Consumed[0].Name = "b" }},
		"from nobody":                {Unexpected, func(w *world) { w.record(4).Consumed[0].Event = "unheard of" }},
		"a start from nobody":        {Unexpected, func(w *world) { w.records[6].Start = "unheard of" }},
		"a letter from nobody":       {Unexpected, func(w *world) { w.letters[0].Event = "unheard of" }},
		"dead and consumed":          {Unexpected, func(w *world) { w.letters = append(w.letters, Letter{MsgID: "d3", Event: "first", Place: "S:2"}) }},
		"poison counted":             {Unexpected, func(w *world) { w.record(4).Consumed = append(w.record(4).Consumed, Seen{10, "a", "poison"}) }},
		"the filtered counted":       {Unexpected, func(w *world) { w.record(4).Consumed = append(w.record(4).Consumed, Seen{10, "a", "filtered"}) }},
		"the refused runs":           {Unexpected, func(w *world) { w.answers["asked"] = Answer{} }},
		"another runs than answered": {Unexpected, func(w *world) { w.answers["asked"] = Answer{Instance: "i9"} }},
		"too early":                  {Unexpected, func(w *world) { w.record(3).Began = second }},
		"woken by nothing":           {Unexpected, func(w *world) { w.record(2).Got = 0 }},
		"sleeps on a signal":         {Slept, func(w *world) { asleep(w, 8) }},
		"does not go on":             {Unended, func(w *world) { w.record(4).Ends = false; w.outcomes = drop(w.outcomes, "i1") }},
		"a stale commit":             {Forked, func(w *world) { r := *w.record(2); r.Link = "x"; w.records = append(w.records, r) }},
		"a stale state":              {Forked, func(w *world) { w.record(4).Prev = "x" }},
		"on after the end":           {Forked, func(w *world) { w.record(3).Ends = true }},
		"effects without state":      {Forked, func(w *world) { w.record(3).Seq = 2 }},
		"state without effects":      {Torn, func(w *world) { w.records = slices.Delete(w.records, 2, 3) }},
		"an end without its effects": {Torn, func(w *world) { w.records = slices.Delete(w.records, 3, 4) }},
		"another end": {Torn, func(w *world) {
			w.outcomes = append(drop(w.outcomes, "i1"), Outcome{MsgID: "e", Instance: "i1", Link: "l3"})
		}},
		"an end of nobody":       {Torn, func(w *world) { w.outcomes = append(w.outcomes, Outcome{MsgID: "e", Instance: "i9", Link: "x"}) }},
		"another value":          {Torn, func(w *world) { w.values["k1"] = "l3" }},
		"an end is not told":     {Untold, func(w *world) { w.outcomes = drop(w.outcomes, "i2") }},
		"an end with two ids":    {Unstable, func(w *world) { o := w.outcomes[0]; o.MsgID = "again"; w.outcomes = append(w.outcomes, o) }},
		"an id with two bodies":  {Unstable, func(w *world) { r := *w.record(1); r.Attempt++; w.again = []Record{r} }},
		"a letter with two ids":  {Unstable, func(w *world) { l := w.letters[0]; l.MsgID = "again"; w.letters = append(w.letters, l) }},
		"out of order":           {Reordered, func(w *world) { c := w.record(4).Consumed; c[0], c[2] = c[2], c[0] }},
		"a partition key shared": {Overlapped, func(w *world) { w.records[6].Began = 3; w.records[6].Unique = "" }},
		"a unique key shared":    {Overlapped, func(w *world) { w.records[6].Began = 2; w.records[6].Lane = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sound()
			c.change(w)
			vs := w.judge(t)
			if !slices.ContainsFunc(vs, func(v Violation) bool { return v.Kind == c.want }) {
				t.Errorf("want %q, found %v", c.want, vs)
			}
		})
	}
	waits := sound()
	asleep(waits, 7)
	for _, v := range waits.judge(t) {
		if v.Kind == Slept {
			t.Errorf("who was handed a signal and waits for more does not sleep: %v", v)
		}
	}
}

// asleep: the instance waits since its third commit, and a signal with this id is in its inbox.
func asleep(w *world, id int64) {
	w.records = slices.Delete(w.records, 3, 4)
	w.parked = []Parked{{Instance: "i1", Key: "k1", Inbox: []Seen{{ID: id, Name: "a", Event: "first"}}}}
}

func drop(os []Outcome, instance string) []Outcome {
	return slices.DeleteFunc(os, func(o Outcome) bool { return o.Instance == instance })
}
