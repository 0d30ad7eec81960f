package httpapi_test

import (
	"fmt"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
)

func testJobs(b *bundle) {
	for i := range 3 {
		b.start(fmt.Sprint("bulk-", i))
	}
	ended := func(id string) (j api.Job) {
		b.Helper()
		apptest.Eventually(b, "the job has ended", func() (bool, error) {
			b.ask(http.StatusOK, "GET", "/v1/jobs/"+id, "", &j)
			return j.EndedAt != nil, fmt.Errorf("it is %+v", j)
		})
		return j
	}
	do := func(body string) api.Job {
		b.Helper()
		var j api.Job
		b.ask(http.StatusCreated, "POST", "/v1/jobs", body, &j)
		return ended(j.ID.String())
	}
	counts := func(j api.Job) string { return fmt.Sprint(j.Status, " ", j.Total, j.Done, j.Failed, j.Skipped) }
	equal(b, "dry run", counts(do(`{"kind": "cancel", "filter": {"correlation_prefix": "bulk-"}, "dry_run": true}`)), "done 3 0 0 0")
	equal(b, "signal", counts(do(`{"kind": "signal", "filter": {"correlation_prefix": "bulk-", "version": 1}, "args": {"name": "aside", "payload": {"n": 1}}}`)), "done 3 3 0 0")
	var inbox api.Page[api.Signal]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:bulk-1/inbox", "", &inbox)
	equal(b, "inbox", len(inbox.Items), 1)
	j := do(`{"kind": "cancel", "filter": {"correlation_prefix": "bulk-", "inserted_from": "2020-01-02T15:04:05Z"}, "rate": 1000, "args": {"reason": "enough"}}`)
	equal(b, "cancel", counts(j), "done 3 3 0 0")
	var page api.Page[api.Job]
	b.ask(http.StatusOK, "GET", "/v1/jobs?limit=2", "", &page)
	equal(b, "the newest", page.Items[0].ID, j.ID)
	equal(b, "there are more", page.NextCursor != nil, true)
	var list api.Page[api.Instance]
	b.ask(http.StatusOK, "GET", "/v1/instances?correlation_prefix=bulk-&version=1&inserted_before=2020-01-02T15:04:05Z", "", &list)
	equal(b, "list", len(list.Items), 0)

	b.refused(api.CodeConflict, "DELETE", "/v1/jobs/"+j.ID.String(), "")
	b.refused(api.CodeNotFound, "GET", "/v1/jobs/00000000-0000-7000-8000-000000000001", "")
	b.refused(api.CodeInvalid, "GET", "/v1/jobs/7", "")
	for _, body := range []string{
		`{}`, `{"kind": "cancel"}`, `{"kind": "drop", "all": true}`, `{"kind": "cancel", "filter": {"status": "done"}}`, `{"kind": "signal", "all": true}`,
		`{"kind": "cancel", "all": true, "rate": -1}`, `{"kind": "cancel", "filter": {"states": "x"}}`, `{"kind": "pause", "all": true, "args": {"reason": "x"}}`,
	} {
		b.refused(api.CodeInvalid, "POST", "/v1/jobs", body)
	}
}
