package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
)

// TestJobOutlivesItsBridge: the bridge that does a job is killed with -9 in the middle, and the next goes on: each instance has its signal once,
// and the counts say so.
func TestJobOutlivesItsBridge(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	const n = 400
	s.count(`select count(*) from pointsman.start_many(array_fill('nobody'::text, array[$1::int]))`, n)
	first := s.start("bridge", "bridge")
	addr := first.address(s)
	s.ready(addr, http.StatusOK, "")
	resp, err := http.Post("http://"+addr+"/v1/jobs", "application/json",
		bytes.NewReader([]byte(`{"kind": "signal", "filter": {"machine": "nobody"}, "args": {"name": "go"}, "rate": 100}`)))
	s.must(err)
	body, err := io.ReadAll(resp.Body)
	s.must(errors.Join(err, resp.Body.Close()))
	var j struct {
		ID                                    string
		Status                                string
		Total, Done, Failed, Skipped, Counted json.RawMessage
	}
	if s.must(json.Unmarshal(body, &j)); resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	signals := func() int { return s.count(`select count(*) from pointsman.signals`) }
	s.until(patience, "some have it", func() (bool, string) { return signals() > 0, first.out.String() })
	first.kill()
	done := signals()
	if left := s.count(`select total - done from pointsman.jobs`); done == n || left == 0 {
		t.Fatalf("the job was over before the bridge was killed: %d have it, %d are left", done, left)
	}
	second := s.start("bridge again", "bridge")
	addr = second.address(s)
	s.until(patience, "the job is done", func() (bool, string) {
		return s.count(`select count(*) from pointsman.jobs where status = 'done'`) == 1, second.out.String()
	})
	_, text := s.get("http://" + addr + "/v1/jobs/" + j.ID)
	s.must(json.Unmarshal([]byte(text), &j))
	if got := j.Status + " " + string(j.Total) + " " + string(j.Done) + " " + string(j.Failed) + " " + string(j.Skipped); got != "done 400 400 0 0" {
		t.Errorf("the job is %s", got)
	}
	if all, once := signals(), s.count(`select count(distinct instance_id) from pointsman.signals`); all != n || once != n {
		t.Errorf("%d signals for %d of %d instances", all, once, n)
	}
	t.Logf("%d had it when the bridge was killed", done)
}
