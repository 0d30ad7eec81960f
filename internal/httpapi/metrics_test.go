package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/pointsman/pointsman/internal/apptest"
)

// Requests are counted under the pattern of their route, whatever is in their paths, and under one name where there is none.
func testMetrics(b *bundle) {
	in := b.start("counted")
	b.refused("not_found", "GET", "/v1/instances/key:counted-nobody", "")
	b.refused("not_found", "GET", "/v1/no/such/path", "")
	b.call("PATCH", "/v1/instances/"+in.ID, "")
	b.ask(http.StatusOK, "GET", "/v1/instances/"+in.ID+"?wait=10ms", "", nil)
	apptest.Eventually(b, "they are counted", func() (bool, error) { // after the answer
		text := string(b.call("GET", "/metrics", "").body)
		for _, want := range []string{
			`pointsman_http_requests_total{route="GET /v1/instances/{ref}",status="2xx"} `, `pointsman_http_requests_total{route="GET /v1/instances/{ref}",status="4xx"} `,
			`pointsman_http_requests_total{route="POST /v1/instances",status="2xx"} `, `pointsman_http_requests_total{route="other",status="4xx"} `,
			`pointsman_http_request_seconds_count{route="GET /v1/instances/{ref}"} `,
		} {
			if !strings.Contains(text, "\n"+want) {
				return false, fmt.Errorf("there is no %s", want)
			}
		}
		if strings.Contains(text, "counted-nobody") || strings.Contains(text, in.ID) || strings.Contains(text, "no/such") {
			b.Fatal("what is in a path is in a label")
		}
		return true, nil
	})
}
