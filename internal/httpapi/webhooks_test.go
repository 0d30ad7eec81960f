package httpapi_test

import (
	"fmt"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
)

// Nothing listens at the URL, and this bridge would send nothing there.
func testWebhooks(b *bundle) {
	var in api.Instance
	b.ask(http.StatusCreated, "POST", "/v1/instances", `{"machine": "teller", "notify_url": "http://127.0.0.1:1/"}`, &in)
	b.ask(http.StatusOK, "DELETE", "/v1/instances/"+in.ID, "", nil)
	var page api.Page[api.WebhookDelivery]
	failed := func() {
		b.Helper()
		apptest.Eventually(b, "the webhook has failed", func() (bool, error) {
			b.ask(http.StatusOK, "GET", "/v1/webhook-deliveries?status=failed&limit=10", "", &page)
			return len(page.Items) == 1, fmt.Errorf("there are %d", len(page.Items))
		})
	}
	failed()
	d := page.Items[0]
	equal(b, "of", d.SourceID+d.Type, in.ID+"instance.canceled")
	var one api.WebhookDelivery
	b.ask(http.StatusOK, "GET", "/v1/webhook-deliveries/"+d.ID, "", &one)
	equal(b, "with its body", len(one.Body) > 0, true)
	b.ask(http.StatusOK, "POST", "/v1/webhook-deliveries/"+d.ID+"/retry", "", &one)
	equal(b, "retried", fmt.Sprint(one.Status, one.Attempts), "pending0")
	failed()
	var results api.WebhookResults
	b.ask(http.StatusOK, "POST", "/v1/webhook-deliveries/retry", fmt.Sprintf(`{"ids": [%q, %q]}`, d.ID, in.ID), &results)
	equal(b, "results", fmt.Sprint(results.Results[0].Result, results.Results[1].Error.Code), "retriednot_found")
	failed()
	b.refused(api.CodeNotFound, "POST", "/v1/webhook-deliveries/"+in.ID+"/retry", "")
	b.refused(api.CodeInvalid, "GET", "/v1/webhook-deliveries?status=lost", "")
	b.refused(api.CodeInvalid, "GET", "/v1/webhook-deliveries/7", "")
	b.refused(api.CodeInvalid, "POST", "/v1/instances", `{"machine": "teller", "notify_url": "ftp://h/"}`)
}
