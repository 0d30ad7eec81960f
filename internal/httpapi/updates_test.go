package httpapi_test

import (
	"encoding/json"
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

func testChildrenAndWebhooks(b *bundle) {
	b.start("family")
	var page api.Page[api.Instance]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:family/children", "", &page)
	equal(b, "children", len(page.Items), 0)
	b.refused(api.CodeNotFound, "GET", "/v1/instances/key:nobody/children", "")
	var sent api.Page[json.RawMessage]
	b.ask(http.StatusOK, "GET", "/v1/webhook-deliveries?status=failed", "", &sent)
	equal(b, "failed webhooks", len(sent.Items), 0)
	none := "/v1/webhook-deliveries/00000001-0000-7000-8000-000000000000"
	b.refused(api.CodeNotFound, "GET", none, "")
	b.refused(api.CodeNotFound, "POST", none+"/retry", "")
	b.refused(api.CodeInvalid, "GET", "/v1/webhook-deliveries?status=none", "")
}
