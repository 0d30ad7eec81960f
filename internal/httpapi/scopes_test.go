package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/auth"
)

// document is what a test needs of /openapi.json.
type document struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Description string `json:"description"`
		Parameters  []struct{ Name, In string }
		Responses   map[string]struct {
			Content map[string]any `json:"content"`
		}
	}
}

// TestScopes walks through the OpenAPI document, and calls each operation as everybody who might: with no token, with a wrong one, and with
// keys of each scope. What a key may not see is not there.
func TestScopes(t *testing.T) {
	t.Parallel()
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	stack := apptest.Start(t, routes, map[string][]string{"ORDERS": {"orders.>"}}, machine)
	b := &bundle{T: t, stack: stack, url: stack.HTTPURL}
	open := b.start("scopes")
	b.becomes("key:scopes", engine.StatusAwaiting)
	tokens := map[string]string{"nobody": "", "wrong": "pm_wrong"}
	for _, project := range []string{"default", "elsewhere"} {
		for _, scope := range []auth.Scope{auth.Read, auth.Send, auth.Admin} {
			tokens[project+" "+scope.String()] = b.key(project, scope)
		}
	}
	apptest.Eventually(t, "the API is closed", func() (bool, error) {
		return b.call("GET", "/v1/instances", "").StatusCode == http.StatusUnauthorized, nil
	})
	var doc document
	b.ask(http.StatusOK, "GET", "/openapi.json", "", &doc)
	calls := 0
	for path, operations := range doc.Paths {
		for method, o := range operations {
			if method == "parameters" {
				continue
			}
			calls++
			checkScopes(b, strings.ToUpper(method), path, o.Description, tokens)
		}
	}
	if calls < 25 {
		t.Errorf("the document has %d operations", calls)
	}

	b.token = tokens["elsewhere admin"]
	for _, ref := range []string{"key:scopes", open.ID} { // for another project it is as if it were not there
		for _, path := range []string{"", "/inbox", "/history", "/events", "/events/x", "/stream"} {
			own := b.refused(api.CodeNotFound, "GET", "/v1/instances/"+ref+path, "")
			none := b.refused(api.CodeNotFound, "GET", "/v1/instances/"+strings.Replace(ref, "scopes", "nobody", 1)+path, "")
			equal(b, path, own.Message+fmt.Sprint(own.Details), none.Message+fmt.Sprint(none.Details))
		}
		b.refused(api.CodeNoTarget, "POST", "/v1/instances/"+ref+"/signals/item", "1")
		b.refused(api.CodeNotFound, "DELETE", "/v1/instances/"+ref, "")
		for _, verb := range []string{"retry", "pause", "resume"} {
			b.refused(api.CodeNotFound, "POST", "/v1/instances/"+ref+"/"+verb, "")
		}
	}
	var page api.Page[api.Instance]
	b.ask(http.StatusOK, "GET", "/v1/instances", "", &page)
	equal(b, "seen", len(page.Items), 0)
	b.refused(api.CodeForbidden, "GET", "/v1/instances?project=default", "")
	b.ask(http.StatusOK, "GET", "/v1/instances?project=elsewhere", "", nil)

	b.token = tokens["default send"]
	b.ask(http.StatusAccepted, "POST", "/v1/instances/key:scopes/signals/note", "1", nil)
	var inbox api.Page[api.Signal]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:scopes/inbox", "", &inbox)
	equal(b, "sent by", *inbox.Items[0].SentBy, "default-send")

	// The token of a stream may be in its query, and in no other's.
	b.token = ""
	b.refused(api.CodeUnauthorized, "GET", "/v1/instances/key:scopes?token="+tokens["default read"], "")
	b.refused(api.CodeNotFound, "GET", "/v1/instances/key:nobody/stream?token="+tokens["default read"], "")
}

// key makes one in the stack's database.
func (b *bundle) key(project string, scope auth.Scope) string {
	b.Helper()
	pool, err := pgxpool.New(b.Context(), b.stack.DatabaseURL)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	keys, err := auth.NewKeys(pool, "")
	if err != nil {
		b.Fatal(err)
	}
	secret, _, err := keys.Create(b.Context(), project, project+"-"+scope.String(), scope)
	if err != nil {
		b.Fatal(err)
	}
	return secret
}

// checkScopes calls an operation with each token, for something that is not there: who may is told so.
func checkScopes(b *bundle, method, path, description string, tokens map[string]string) {
	b.Helper()
	call := strings.NewReplacer("{ref}", "key:nothing", "{name}", "nothing", "{key}", "nothing", "{seq}", "999999", "{id}", "00000000-0000-7000-8000-000000000000", "{prefix}", "nothing").Replace(path)
	shared := strings.Contains(description, "admin token")
	need := auth.Scope(0)
	for _, s := range []auth.Scope{auth.Read, auth.Send, auth.Admin} {
		if strings.Contains(description, "scope "+s.String()) {
			need = s
		}
	}
	if need == 0 {
		b.Errorf("%s %s: says of no scope: %q", method, path, description)
	}
	for who, token := range tokens {
		as := &bundle{T: b.T, stack: b.stack, url: b.url, token: token}
		_, name, isKey := strings.Cut(who, " ")
		scope, _ := auth.ParseScope(name)
		switch {
		case !isKey:
			a := as.call(method, call, "{")
			a.refused(as, api.CodeUnauthorized)
			equal(b, method+" "+path, a.Header.Get("WWW-Authenticate"), `Bearer realm="pointsman"`)
		case shared || scope < need:
			as.refused(api.CodeForbidden, method, call, "{")
		default:
			if a := as.call(method, call, "{"); a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden || a.StatusCode >= 500 {
				b.Errorf("%s %s as %s: %s: %s", method, path, who, a.Status, a.body)
			}
		}
	}
}
