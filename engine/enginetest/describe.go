package enginetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// How much of it a description says.
const (
	describedRows  = 20
	describedBytes = 300
)

// Describe says all there is to say of an instance: what it is, what it waits for, its state, its inbox, its events, and the latest of
// its history.
func (in *Instance) Describe() string {
	in.env.t.Helper()
	got := in.Get()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", got.Machine, got.ID)
	if got.CorrelationKey != "" {
		fmt.Fprintf(&b, " %q", got.CorrelationKey)
	}
	fmt.Fprintf(&b, ": %s in step %q, attempt %d", got.Status, got.Step, got.Attempt)
	line := func(what, text string) { fmt.Fprintf(&b, "\n  %-9s %s", what, text) }
	if why := in.rests(got); why != "" {
		line("rests", why)
	}
	if got.LastError != "" {
		line("error", got.LastError)
	}
	line("state", short(got.State))
	if got.Status == engine.StatusDone {
		line("result", short(got.Result))
	}
	in.describeInbox(line)
	in.describeEvents(line)
	if table := in.historyTable(); table != "" {
		line("history", strings.ReplaceAll(table, "\n", "\n            "))
	}
	return b.String()
}

// rests is why an instance that lives does not run.
func (in *Instance) rests(got engine.Instance) string {
	machine := fmt.Sprintf("%s@%d", got.Machine, got.Version)
	switch {
	case got.Paused:
		return "paused"
	case got.Status == engine.StatusAwaiting && got.Deadline == nil:
		return fmt.Sprintf("awaits %v, without a deadline: only a signal wakes it", got.Awaits)
	case got.Status == engine.StatusAwaiting:
		return fmt.Sprintf("awaits %v until %s", got.Awaits, ahead(*got.Deadline))
	case got.Status == engine.StatusExecuting && got.Lease != nil:
		return fmt.Sprintf("leased to %s until %s", got.Lease.Worker, ahead(got.Lease.ExpiresAt))
	case got.Status != engine.StatusRunnable:
		return ""
	case got.RunAt != nil && time.Until(*got.RunAt) > 0:
		return "runs at " + ahead(*got.RunAt)
	case !in.env.known[machine]:
		return "of the machine " + machine + ", which New was not given"
	case got.PartitionKey != "":
		return fmt.Sprintf("ready, or waits for the partition key %q", got.PartitionKey)
	}
	return "ready: Drain runs it"
}

func ahead(at time.Time) string {
	return fmt.Sprintf("%s, in %s", at.UTC().Format(time.RFC3339), time.Until(at).Round(time.Second))
}

func (in *Instance) describeInbox(line func(what, text string)) {
	in.env.t.Helper()
	what := "inbox"
	for i, s := range in.Inbox() {
		if i == describedRows {
			line("", "…")
			return
		}
		text := s.Name + " " + short(s.Payload)
		if s.DedupKey != "" {
			text += fmt.Sprintf(" (%q)", s.DedupKey)
		}
		line(what, text)
		what = ""
	}
}

func (in *Instance) describeEvents(line func(what, text string)) {
	in.env.t.Helper()
	events, err := in.env.Client.Events(in.env.t.Context(), in.ID)
	in.env.must(err)
	keys := make([]string, 0, len(events))
	for key := range events {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys[:min(len(keys), describedRows)] {
		line("event", key+" "+short(events[key]))
	}
}

// historyTable has a line for each of the latest transitions; "": the machine keeps none, or nothing has run.
func (in *Instance) historyTable() string {
	in.env.t.Helper()
	all := in.History()
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if before := len(all) - describedRows; before > 0 {
		fmt.Fprintf(&b, "… %d before\n", before)
		all = all[before:]
	}
	fmt.Fprintln(w, "step\tattempt\toutcome\tconsumed")
	for _, t := range all {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%d\n", t.Step, t.Attempt, t.Outcome, len(t.Consumed))
	}
	_ = w.Flush() // into memory
	return strings.TrimRight(b.String(), "\n")
}

// short is JSON that may be longer than anybody reads.
func short(data json.RawMessage) string {
	if len(data) <= describedBytes {
		return string(data)
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(data[:describedBytes]), ""), len(data))
}
