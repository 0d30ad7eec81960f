package httpapi_test

import (
	"fmt"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
)

// An update that nobody has yet taken is accepted without a run, and is named after who sent it; one for nobody is not found.
func testUpdates(b *bundle) {
	b.start("update")
	var out struct {
		Accepted bool
		Run      *api.Instance
	}
	a := b.ask(http.StatusOK, "POST", "/v1/instances/key:update/updates/decide?wait=1ms", `{"yes": true}`, &out, "Idempotency-Key", "u-1")
	if !out.Accepted || out.Run != nil {
		b.Errorf("%s", a.body)
	}
	b.ask(http.StatusOK, "POST", "/v1/instances/key:update/updates/decide", `{"yes": true}`, &out, "Idempotency-Key", "u-1")
	b.refused(api.CodeConflict, "POST", "/v1/instances/key:update/updates/decide", `{"yes": false}`, "Idempotency-Key", "u-1")
	b.refused(api.CodeNotFound, "POST", "/v1/instances/key:nobody/updates/decide", `1`)
	b.refused(api.CodeInvalid, "POST", "/v1/instances/key:update/updates/decide?wait=soon", `1`)
	b.refused(api.CodeInvalid, "POST", "/v1/instances/key:update/updates/decide", `{`)
	var inbox api.Page[api.Signal]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:update/inbox", "", &inbox)
	equal(b, "inbox", fmt.Sprint(len(inbox.Items), inbox.Items[0].Kind, inbox.Items[0].Name), "1updatedecide")
}

func testChildren(b *bundle) {
	b.start("family")
	var page api.Page[api.Instance]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:family/children", "", &page)
	equal(b, "children", len(page.Items), 0)
	b.refused(api.CodeNotFound, "GET", "/v1/instances/key:nobody/children", "")
}
