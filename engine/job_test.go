package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// jobs is a bundle with a runner that a test drives by hand.
type jobs struct {
	*bundle
	runner *engine.JobRunner
}

func setupJobs(t *testing.T) *jobs {
	b := setup(t)
	return &jobs{b, must(b.NewJobRunner(engine.JobRunnerConfig{}))(t)}
}

// several instances of a machine that nobody serves, with the keys "<machine>-0" and so on.
func (b *jobs) several(machine string, n int) (ids []uuid.UUID) {
	b.t.Helper()
	for i := range n {
		ids = append(ids, b.begin(machine, fmt.Sprintf("%s-%d", machine, i)).ID)
	}
	return ids
}

func (b *jobs) begun(n engine.NewJob) engine.Job {
	b.t.Helper()
	return must(b.StartJob(b.t.Context(), n))(b.t)
}

func (b *jobs) job(id uuid.UUID) engine.Job {
	b.t.Helper()
	return must(b.Job(b.t.Context(), "", id))(b.t)
}

// step does a batch of at most so many, and says whether there was one.
func (b *jobs) step(most int) bool {
	b.t.Helper()
	return must(engine.StepJob(b.t.Context(), b.runner, most))(b.t)
}

// do a job to its end.
func (b *jobs) do(n engine.NewJob) engine.Job {
	b.t.Helper()
	j := b.begun(n)
	for b.job(j.ID).Status == engine.JobRunning {
		if !b.step(3) {
			b.t.Fatalf("nothing is due of %+v", b.job(j.ID))
		}
	}
	return b.job(j.ID)
}

func counts(j engine.Job) string {
	return fmt.Sprintf("%s %d: %d %d %d", j.Status, j.Total, j.Done, j.Failed, j.Skipped)
}

func TestJobKinds(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.several("bulk", 8)
	other := b.several("other", 2)
	of := engine.Filter{Machine: "bulk"}
	states := func(want string) {
		t.Helper()
		live, paused := 0, 0
		for _, id := range ids {
			in := b.get(id)
			if in.Status.Live() {
				live++
			}
			if in.Paused {
				paused++
			}
		}
		equal(t, "live, paused", fmt.Sprint(live, " ", paused), want)
	}
	must(b.Pause(t.Context(), engine.ByID(ids[3])))(t)
	equal(t, "dry run", counts(b.do(engine.NewJob{Kind: engine.JobPause, Filter: of, DryRun: true})), "done 7: 0 0 0")
	states("8 1")
	equal(t, "pause", counts(b.do(engine.NewJob{Kind: engine.JobPause, Filter: of})), "done 7: 7 0 0")
	states("8 8")
	equal(t, "pause again", counts(b.do(engine.NewJob{Kind: engine.JobPause, Filter: of})), "done 0: 0 0 0")
	equal(t, "resume", counts(b.do(engine.NewJob{Kind: engine.JobResume, Filter: of})), "done 8: 8 0 0")
	states("8 0")
	equal(t, "ready", b.count(`select count(*) from pointsman.ready r join pointsman.instances i on i.id = r.instance_id and i.rev = r.rev where machine = 'bulk'`), 8)
	equal(t, "signal", counts(b.do(engine.NewJob{Kind: engine.JobSignal, Filter: of, Name: "go", Payload: raw(`{"n": 1.50}`), CreatedBy: "alice"})), "done 8: 8 0 0")
	for _, id := range ids {
		inbox := must(b.Inbox(t.Context(), id, 0, 10))(t)
		if len(inbox) != 1 || inbox[0].Name != "go" || string(inbox[0].Payload) != `{"n": 1.50}` || inbox[0].SentBy != "alice" {
			t.Errorf("inbox: %+v", inbox)
		}
	}
	equal(t, "cancel", counts(b.do(engine.NewJob{Kind: engine.JobCancel, Filter: of, Reason: "no more"})), "done 8: 8 0 0")
	states("0 0")
	equal(t, "reason", b.get(ids[0]).LastError, "no more")
	equal(t, "published", len(b.published(engine.PublishOutcome)), 8)
	holder := b.begin("other", "bulk-5")
	retried := b.do(engine.NewJob{Kind: engine.JobRetry, Filter: engine.Filter{Machine: "bulk", Status: engine.StatusCanceled}})
	equal(t, "retry", counts(retried), "done 8: 7 1 0")
	equal(t, "of whom", retried.Errors[0].InstanceID, ids[5])
	contains(t, "why", retried.Errors[0].Message, holder.ID.String())
	states("7 0")
	for _, id := range other {
		equal(t, "others", b.get(id).Status, engine.StatusRunnable)
	}
}

// Of the ended with one key the last is retried, as it is by its key.
func TestJobRetriesTheLastOfAKey(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	var ids []uuid.UUID
	for range 3 {
		in := b.begin("m", "k")
		ids = append(ids, in.ID)
		must(b.Cancel(t.Context(), engine.ByID(in.ID), ""))(t)
	}
	equal(t, "retry", counts(b.do(engine.NewJob{Kind: engine.JobRetry, All: true})), "done 3: 1 2 0")
	equal(t, "the last", b.get(ids[2]).Status, engine.StatusRunnable)
}

func TestJobFilters(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.several("m", 4)
	b.start(engine.NewInstance{Machine: "m", Version: 2, Queue: "slow", CorrelationKey: "x-1"})
	b.start(engine.NewInstance{Machine: "m", Project: "elsewhere", CorrelationKey: "m-1"})
	b.exec(`update pointsman.instances set inserted_at = inserted_at - interval '1 h' where id = any($1)`, ids[:2])
	halfHour := time.Now().Add(-30 * time.Minute)
	for what, c := range map[string]struct {
		filter engine.Filter
		want   int64
	}{
		"machine":  {engine.Filter{Machine: "m"}, 5},
		"version":  {engine.Filter{Version: 2}, 1},
		"queue":    {engine.Filter{Queue: "slow"}, 1},
		"key":      {engine.Filter{CorrelationKey: "m-1"}, 1},
		"prefix":   {engine.Filter{CorrelationPrefix: "m-"}, 4},
		"status":   {engine.Filter{Status: engine.StatusAwaiting}, 0},
		"from":     {engine.Filter{InsertedFrom: &halfHour}, 3},
		"before":   {engine.Filter{InsertedBefore: &halfHour}, 2},
		"project":  {engine.Filter{Project: "elsewhere", Machine: "m"}, 1},
		"together": {engine.Filter{Machine: "m", CorrelationPrefix: "m-", InsertedFrom: &halfHour}, 2},
	} {
		j := b.begun(engine.NewJob{Kind: engine.JobCancel, Filter: c.filter, DryRun: true})
		for b.step(3) {
		}
		equal(t, what, must(b.Job(t.Context(), j.Project, j.ID))(t).Total, c.want)
	}
	page, _, err := b.List(t.Context(), engine.Filter{Version: 2, InsertedFrom: &halfHour}, uuid.Nil, 10)
	equal(t, "list", fmt.Sprint(len(page), err), "1 <nil>")
}

// What starts after a job was asked for is not its.
func TestJobLeavesWhatStartsLater(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	b.several("m", 2)
	j := b.begun(engine.NewJob{Kind: engine.JobCancel, All: true})
	later := b.begin("m", "later").ID
	for b.step(1) {
	}
	equal(t, "job", counts(b.job(j.ID)), "done 2: 2 0 0")
	equal(t, "later", b.get(later).Status, engine.StatusRunnable)
}

// Who has changed before its turn so that the filter does not find it is skipped, or was not found; the counts say which.
func TestJobCanceled(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.several("m", 6)
	j := b.begun(engine.NewJob{Kind: engine.JobCancel, Filter: engine.Filter{Machine: "m"}})
	b.step(2) // counts
	b.step(2)
	equal(t, "under way", counts(b.job(j.ID)), "running 6: 2 0 0")
	equal(t, "canceled", must(b.CancelJob(t.Context(), "", j.ID))(t).Status, engine.JobCanceled)
	equal(t, "again", must(b.CancelJob(t.Context(), "", j.ID))(t).Status, engine.JobCanceled)
	equal(t, "worked", b.step(2), false)
	equal(t, "in the end", counts(b.job(j.ID)), "canceled 6: 2 0 0")
	equal(t, "the oldest", b.get(ids[0]).Status, engine.StatusRunnable)
	done := b.do(engine.NewJob{Kind: engine.JobCancel, Filter: engine.Filter{Machine: "m"}})
	_, err := b.CancelJob(t.Context(), "", done.ID)
	equal(t, "done", engine.Code(err), "conflict")
	_, err = b.CancelJob(t.Context(), "elsewhere", done.ID)
	equal(t, "of another project", errors.Is(err, engine.ErrNotFound), true)
	list := must(b.Jobs(t.Context(), "", uuid.Nil, 1))(t)
	equal(t, "the newest", list[0].ID, done.ID)
	list = must(b.Jobs(t.Context(), "", done.ID, 10))(t)
	equal(t, "before it", fmt.Sprint(len(list), list[0].ID), fmt.Sprint(1, j.ID))
}

// A runner whose connection dies in the middle of a batch leaves nothing of the batch behind, and the next one does it once.
func TestJobSurvivesItsRunner(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.several("m", 4)
	j := b.begun(engine.NewJob{Kind: engine.JobSignal, Filter: engine.Filter{Machine: "m"}, Name: "go"})
	b.step(2) // counts
	b.step(2)
	lock := must(b.pool.Begin(t.Context()))(t)
	defer lock.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it may be over
	if _, err := lock.Exec(t.Context(), `select from `+b.db.Schema+`.instances where id = $1 for update`, ids[0]); err != nil {
		t.Fatal(err)
	}
	dying := must(b.another(b.db.URL).NewJobRunner(engine.JobRunnerConfig{}))(t)
	died := make(chan error, 1)
	go func() {
		_, err := engine.StepJobPatiently(t.Context(), dying, 2)
		died <- err
	}()
	var pid int
	eventually(t, "it waits", func() bool {
		pid = b.count(`select coalesce(max(pid), 0) from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'`, b.db.Schema+".instances")
		return pid > 0
	})
	equal(t, "another has nothing to do", b.step(2), false)
	b.exec(`select pg_terminate_backend($1)`, pid)
	if err := receive(t, died); err == nil {
		t.Error("it has not died")
	}
	equal(t, "nothing of its batch", counts(b.job(j.ID)), "running 4: 2 0 0")
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exec(`update pointsman.jobs set due_at = now()`)
	for b.step(2) {
	}
	equal(t, "in the end", counts(b.job(j.ID)), "done 4: 4 0 0")
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), 4)
}

// One instance that cannot be stored fails alone, with its reason.
func TestJobFindsWhoFails(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.several("m", 20)
	b.exec(`alter table pointsman.instances add constraint poison check (not (paused and correlation_key in ('m-7', 'm-8')))`)
	j := b.begun(engine.NewJob{Kind: engine.JobPause, Filter: engine.Filter{Machine: "m"}})
	for b.step(16) {
	}
	j = b.job(j.ID)
	equal(t, "job", counts(j), "done 20: 18 2 0")
	equal(t, "who", fmt.Sprint(j.Errors[0].InstanceID, j.Errors[1].InstanceID), fmt.Sprint(ids[8], ids[7]))
	contains(t, "why", j.Errors[0].Message, "poison")
}

// A batch of a job with a rate is followed by a rest that makes the rate.
func TestJobRate(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	b.several("m", 9)
	j := b.begun(engine.NewJob{Kind: engine.JobPause, Filter: engine.Filter{Machine: "m"}, Rate: 8})
	b.step(200) // counts
	micros := func() int {
		return b.count(`select (extract(epoch from due_at) * 1e6)::bigint from pointsman.jobs`)
	}
	for range 4 {
		b.exec(`update pointsman.jobs set due_at = now()`)
		due := micros()
		equal(t, "worked", b.step(200), true)
		if rest := micros() - due; rest < 250_000 {
			t.Errorf("a rest of %dµs", rest)
		}
	}
	equal(t, "done", counts(b.job(j.ID)), "running 9: 8 0 0")
	// After an outage it makes up for a second of it.
	b.exec(`update pointsman.jobs set due_at = now() - interval '1 h'`)
	before := b.count(`select (extract(epoch from now()) * 1e6)::bigint`)
	b.step(200)
	if due := micros(); due < before-1_000_000+125_000 {
		t.Errorf("due %dµs before now", before-due)
	}
	equal(t, "done", counts(b.job(j.ID)), "done 9: 9 0 0")
}

func TestJobRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	some := engine.Filter{Machine: "m"}
	for what, n := range map[string]engine.NewJob{
		"kind":            {Kind: "delete", Filter: some},
		"filter":          {Kind: engine.JobCancel},
		"status":          {Kind: engine.JobCancel, Filter: engine.Filter{Status: engine.StatusDone}},
		"rate":            {Kind: engine.JobCancel, Filter: some, Rate: -1},
		"name":            {Kind: engine.JobSignal, Filter: some},
		"reason":          {Kind: engine.JobPause, Filter: some, Reason: "x"},
		"payload":         {Kind: engine.JobSignal, Filter: some, Name: "go", Payload: raw(`{`)},
		"version":         {Kind: engine.JobCancel, Filter: engine.Filter{Version: -1}},
		"machine":         {Kind: engine.JobCancel, Filter: engine.Filter{Machine: "a b"}},
		"inserted_before": {Kind: engine.JobCancel, Filter: engine.Filter{InsertedFrom: new(time.Unix(2, 0)), InsertedBefore: new(time.Unix(1, 0))}},
	} {
		_, err := b.StartJob(t.Context(), n)
		var invalid *engine.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := b.StartJob(t.Context(), engine.NewJob{Kind: engine.JobRetry, Filter: engine.Filter{Status: engine.StatusAwaiting}})
	contains(t, "retry", fmt.Sprint(err), "failed and canceled")
	if _, err := b.Job(t.Context(), "", uuid.New()); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
}

// A running bridge does them, and a worker deletes them in time.
func TestJobRunner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.begin("m", "k")
	r := must(b.NewJobRunner(engine.JobRunnerConfig{Poll: 5 * time.Millisecond}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	j := must(b.StartJob(t.Context(), engine.NewJob{Kind: engine.JobCancel, All: true}))(t)
	eventually(t, "done", func() bool { return must(b.Job(t.Context(), "", j.ID))(t).Status == engine.JobDone })
	cancel()
	if err := receive(t, ran); err != nil {
		t.Error(err)
	}
	text := must(json.Marshal(must(b.Job(t.Context(), "", j.ID))(t)))(t)
	contains(t, "JSON", string(text), `"errors":[]`)
	b.work(engine.WorkerConfig{ReapInterval: 10 * time.Millisecond, Retention: engine.Retention{Jobs: time.Millisecond}})
	eventually(t, "retired", func() bool { return b.count(`select count(*) from pointsman.jobs`) == 0 })
}

// The same request again is the same job, whoever asks at once; one for something else is refused.
func TestJobIsAskedForOnce(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	b.several("m", 2)
	n := engine.NewJob{Kind: engine.JobSignal, Filter: engine.Filter{Machine: "m"}, Name: "go", DedupKey: "k"}
	ids := make(chan uuid.UUID, 8)
	for range cap(ids) {
		go func() {
			j, err := b.StartJob(t.Context(), n)
			if err != nil {
				t.Error(err)
			}
			ids <- j.ID
		}()
	}
	first := receive(t, ids)
	for range cap(ids) - 1 {
		equal(t, "job", receive(t, ids), first)
	}
	for b.step(10) {
	}
	equal(t, "done once", counts(b.begun(n)), "done 2: 2 0 0")
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), 2)
	var conflict *engine.ConflictError
	for _, change := range []func(n *engine.NewJob){
		func(n *engine.NewJob) { n.Kind, n.Name = engine.JobCancel, "" }, func(n *engine.NewJob) { n.Filter.Machine = "other" }, func(n *engine.NewJob) { n.Name = "other" },
		func(n *engine.NewJob) { n.Payload = raw(`1`) }, func(n *engine.NewJob) { n.Rate = 1 }, func(n *engine.NewJob) { n.DryRun = true },
	} {
		other := n
		change(&other)
		if _, err := b.StartJob(t.Context(), other); !errors.As(err, &conflict) || !strings.Contains(err.Error(), first.String()) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	n.Filter.Project = "other"
	if j := b.begun(n); j.ID == first {
		t.Error("it is another project's job")
	}
}

// A cancel with children: what is below each that it ends is ended too, also where the runner dies in between, and the job ends after that.
func TestJobCancelsChildren(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	roots, children, grandchildren := b.several("m", 3), b.several("c", 6), b.several("g", 3)
	other := b.several("other", 1)
	b.exec(`update pointsman.instances set parent_id = ($1::uuid[])[1 + array_position($2, id) % 3] where id = any($2)`, roots, children)
	b.exec(`update pointsman.instances set parent_id = $1 where id = any($2)`, children[0], grandchildren)
	live := func(ids []uuid.UUID) int {
		return b.count(`select count(*) from pointsman.instances where live and id = any($1)`, ids)
	}
	j := b.begun(engine.NewJob{Kind: engine.JobCancel, Filter: engine.Filter{Machine: "m"}, Reason: "enough", Children: true})
	b.step(2) // counts
	b.step(2)
	equal(t, "first batch", fmt.Sprint(counts(b.job(j.ID)), live(roots), live(children)), fmt.Sprint("running 3: 2 0 0", 1, 6))
	b.runner = must(b.another(b.db.URL).NewJobRunner(engine.JobRunnerConfig{}))(t) // the first one has died
	b.step(2)
	equal(t, "and below it", fmt.Sprint(counts(b.job(j.ID)), live(roots), live(children)), fmt.Sprint("running 3: 2 0 0", 1, 2))
	b.step(2)
	equal(t, "second batch", fmt.Sprint(counts(b.job(j.ID)), live(roots), live(children)), fmt.Sprint("running 3: 3 0 0", 0, 2))
	b.step(2)
	equal(t, "in the end", fmt.Sprint(counts(b.job(j.ID)), live(children), live(grandchildren), live(other)), fmt.Sprint("done 3: 3 0 0", 0, 0, 1))
	equal(t, "reasons", b.count(`select count(*) from pointsman.instances where status = 'canceled' and last_error = 'enough'`), 12)
	if _, err := b.StartJob(t.Context(), engine.NewJob{Kind: engine.JobPause, All: true, Children: true}); engine.Code(err) != "invalid" {
		t.Errorf("a pause with children: %v", err)
	}
}
