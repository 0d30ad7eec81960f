package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

// What no operation answers is refused in the form of all errors.
func testUnknown(b *bundle) {
	for _, path := range []string{"/v2", "/v1", "/v1/", "/v1/instances/", "/v1/instances//inbox", "/v1/../v1/instances", "/v1/instances/x/y/z", "/favicon.ico", "//v1/instances"} {
		b.refused(api.CodeNotFound, "GET", path, "")
	}
	for path, allow := range map[string]string{"/v1/instances": "GET, HEAD, POST", "/v1/instances/key:a": "DELETE, GET, HEAD", "/v1/instances/key:a/retry": "POST", "/openapi.json": "GET, HEAD"} {
		for _, method := range []string{"PATCH", "OPTIONS", "BREW"} {
			a := b.call(method, path, "")
			equal(b, method+" "+path, fmt.Sprint(a.StatusCode, a.Header.Get("Allow")), "405"+allow)
			a.refused(b, api.CodeInvalid)
		}
	}
	a := b.call("HEAD", "/v1/instances", "")
	equal(b, "HEAD", fmt.Sprint(a.StatusCode, len(a.body)), "200 0")
}

func testSizes(b *bundle) {
	b.start("sizes")
	body := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	b.ask(http.StatusAccepted, "POST", "/v1/instances/key:sizes/signals/note", body(1<<20), nil)
	b.refused(api.CodeTooLarge, "POST", "/v1/instances/key:sizes/signals/note", body(1<<20+1))
	b.ask(http.StatusCreated, "POST", "/v1/instances", `{"machine": "order", "state": `+body(1<<20)+`}`, nil)
	b.refused(api.CodeTooLarge, "POST", "/v1/instances", `{"machine": "order", "state": `+body(1<<20+1)+`}`)
	b.refused(api.CodeTooLarge, "POST", "/v1/instances/key:sizes/signals/note", body(20<<20)) // more than connections buffer
	b.refused(api.CodeTooLarge, "POST", "/v1/instances", `{"machine": "order", "state": `+body(8<<20)+`}`)
	// A body that says nothing of its length is counted as it comes.
	r, err := http.NewRequestWithContext(b.Context(), "POST", b.url+"/v1/instances/key:sizes/signals/note", io.MultiReader(strings.NewReader(body(2<<20))))
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	_ = resp.Body.Close()
	equal(b, "chunked", resp.StatusCode, http.StatusRequestEntityTooLarge)
}

func testWait(b *bundle) {
	b.start("wait")
	in := b.becomes("key:wait", engine.StatusAwaiting)
	b.ask(http.StatusOK, "GET", "/v1/instances/key:wait?wait=1ms", "", &in)
	equal(b, "time is up", in.Status, engine.StatusAwaiting)
	ended := make(chan answer)
	go func() { ended <- b.call("GET", "/v1/instances/key:wait?wait=60s", "") }()
	b.ask(http.StatusOK, "POST", "/v1/signals", `[{"correlation_key": "wait", "name": "item"}, {"correlation_key": "wait", "name": "payment", "payload": {"amount": 1}}]`, nil)
	a := <-ended
	if err := json.Unmarshal(a.body, &in); err != nil || in.Status != engine.StatusDone {
		b.Errorf("%v: %s", err, a.body)
	}
}

func testConditional(b *bundle) {
	b.start("etag")
	b.becomes("key:etag", engine.StatusAwaiting)
	tag := b.ask(http.StatusOK, "GET", "/v1/instances/key:etag", "", nil).Header.Get("ETag")
	a := b.ask(http.StatusNotModified, "GET", "/v1/instances/key:etag", "", nil, "If-None-Match", `"x", `+tag)
	equal(b, "no body", len(a.body), 0)
	b.ask(http.StatusAccepted, "POST", "/v1/instances/key:etag/signals/note", "1", nil)
	a = b.ask(http.StatusOK, "GET", "/v1/instances/key:etag", "", nil, "If-None-Match", tag)
	if a.Header.Get("ETag") == tag || tag == "" {
		b.Errorf("the tag stays %s", tag)
	}
}

func testHeaders(b *bundle) {
	a := b.call("GET", "/v1/instances", "", "X-Request-Id", "mine-1")
	for name, want := range map[string]string{
		"X-Request-Id": "mine-1", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Type": "application/json", "Access-Control-Allow-Origin": "",
	} {
		equal(b, name, a.Header.Get(name), want)
	}
	a = b.call("GET", "/v1/instances", "", "X-Request-Id", "with space")
	if id := a.Header.Get("X-Request-Id"); len(id) != 36 {
		b.Errorf("request id %q", id)
	}
	for i := range 10 {
		b.start(fmt.Sprintf("headers-%d", i))
	}
	a = b.call("GET", "/v1/instances?correlation_prefix=headers-", "", "Accept-Encoding", "gzip")
	equal(b, "encoding", a.Header.Get("Content-Encoding"), "gzip")
	z, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		b.Fatal(err)
	}
	var page api.Page[api.Instance]
	if err := json.NewDecoder(z).Decode(&page); err != nil || len(page.Items) != 10 {
		b.Errorf("%v: %d items", err, len(page.Items))
	}
}

// A page of another site can neither write nor, under a name of its own for this address, read.
func testBrowsers(b *bundle) {
	b.refused(api.CodeForbidden, "POST", "/v1/instances", `{"machine": "order"}`, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	b.refused(api.CodeForbidden, "POST", "/v1/instances", `{"machine": "order"}`, "Origin", "https://evil.example")
	b.refused(api.CodeForbidden, "GET", "/v1/instances", "", "Host", "evil.example:8080")
	b.refused(api.CodeForbidden, "GET", "/v1/instances", "", "Host", "127.0.0.1.evil.example")
	for _, host := range []string{"localhost:1234", "LOCALHOST", "[::1]:80", "127.0.0.5", "app.localhost"} {
		b.ask(http.StatusOK, "GET", "/v1/instances", "", nil, "Host", host)
	}
	b.refused(api.CodeUnauthorized, "GET", "/v1/instances", "", "Authorization", "Bearer nonsense")
	b.refused(api.CodeUnauthorized, "GET", "/v1/instances", "", "Authorization", "Basic YTpi")
	b.refused(api.CodeInvalid, "GET", "/v1/instances?token=x", "")
}
