package dashboard_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/dashboard"
)

// TestFiles are served as they are, and everything else is for the API.
func TestFiles(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h := dashboard.Over(next)
	call := func(method, path string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for path, mime := range map[string]string{"/": "text/html", "/dashboard/main.js": "text/javascript", "/dashboard/style.css": "text/css", "/dashboard/icon.svg": "image/svg+xml"} {
		w := call("GET", path)
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), mime) {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		if csp := w.Header().Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("%s: policy %s", path, csp)
		}
		if again := call("GET", path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s: with its tag: %d", path, again.Code)
		}
	}
	page, _ := io.ReadAll(call("GET", "/").Body)
	for _, bad := range []string{"<style", " style=", "onclick", "https://", "http://"} {
		if strings.Contains(string(page), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, other := range [][2]string{{"POST", "/"}, {"GET", "/dashboard"}, {"GET", "/dashboard/"}, {"GET", "/dashboard/none.js"}, {"GET", "/index.html"}, {"GET", "/v1/stats"}} {
		if w := call(other[0], other[1]); w.Code != http.StatusTeapot {
			t.Errorf("%s %s: %d", other[0], other[1], w.Code)
		}
	}
}

// TestDashboard is all of it in a browser, page after page, on one stack.
func TestDashboard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	w := newWorld(t)
	b.url = w.url
	b.login(w)
	b.pages()
	b.actions(w)
	b.keyboard()
	b.hostile()
	b.scopes(w)
}

// login is all there is without a token; where none is needed there is no login.
func (b *browser) login(w *world) {
	b.Helper()
	const visible = `document.body.innerText`
	b.do(chromedp.Navigate(b.url + "/#/instances"))
	b.until("there is a login", `document.querySelector('#login').checkVisibility()`)
	if text := eval[string](b, visible); strings.Contains(text, "Instances") || strings.Contains(text, "order-") || eval[bool](b, `Boolean(document.querySelector('nav'))`) {
		b.Errorf("without a token there is more than a login: %s", text)
	}
	b.usable("login")
	b.fill("API key or admin token", "wrong")
	b.click("button", "Log in")
	b.sees("The token is not known, or was revoked.")
	b.quiet("401")
	b.fill("API key or admin token", token)
	b.click("button", "Log in")
	b.sees("order-39", "loan-1")
	for _, where := range []string{`document.cookie`, `JSON.stringify(localStorage)`, `location.href`, `performance.getEntriesByType('resource').map((e) => e.name).join(' ')`} {
		if strings.Contains(eval[string](b, where), token) {
			b.Errorf("%s has the token", where)
		}
	}
	b.click("button", "Log out")
	b.until("there is a login", `document.querySelector('#login').checkVisibility() && !document.querySelector('.frame')`)
	b.do(chromedp.Navigate(w.open + "/"))
	b.sees("Needs attention")
	if eval[bool](b, `document.querySelector('#login').checkVisibility()`) {
		b.Error("there is a login where none is needed")
	}
	b.quiet()
	b.do(chromedp.Navigate(b.url + "/"))
	b.fill("API key or admin token", token)
	b.click("button", "Log in")
	b.sees("Needs attention")
	b.quiet("401")
}

// pages show what is there, to everybody, with no error.
func (b *browser) pages() {
	b.Helper()
	for _, page := range []struct {
		name, hash string
		sees       []string
	}{
		{"overview", "#/", []string{"Needs attention", "Queue nightly", "no worker serves it", "Dead letters", "Failed webhooks", "Failed instances", "charge-1", "placed", "declined"}},
		{"routes", "#/routes", []string{"placed", "payments", "orders.*.item", "running"}},
		{"route", "#/routes/payments", []string{"pointsman-payments", "dead lettered", "Checkpoint"}},
		{"queues", "#/queues", []string{"nightly", "unserved", "order@1", "alive"}},
		{"instances", "#/instances", []string{"loan-1", "desk v1", "item, payment", "awaiting signal"}},
		{"instances-failed", "#/instances?status=failed", []string{"charge-1", "declined"}},
		{"instance", "#/instances/key%3Aloan-1", []string{"Waits for", "note", "left", "12345678901234567", "progress", "child-1", "decide"}},
		{"instance-failed", "#/instances/key%3Acharge-1", []string{"Failed in the step", "declined", "Retry…"}},
		{"triggers", "#/triggers", []string{"approval:loan-1", "approval:invoice-9", "waiting", "left"}},
		{"trigger", "#/triggers/approval%3Ainvoice-9", []string{"finance", "Send the event…"}},
		{"dead-letters", "#/dead-letters", []string{"orders.nobody-1.paid", "payments", "ORDERS"}},
		{"webhooks", "#/webhooks?status=failed", []string{"http://127.0.0.1:1/hook", "failed", "instance.failed"}},
		{"held", "#/held", []string{"early-1", "items", "left"}},
		{"message", "#/messages?stream=ORDERS&seq=1", []string{"started", "placed", "orders.order-0.placed"}},
		{"none", "#/nothing", []string{"No such page"}},
	} {
		b.open(page.hash)
		b.sees(page.sees...)
		b.usable(page.name)
		b.quiet()
	}
	b.open("#/instances/key%3Anobody")
	b.sees("Not shown")
	b.quiet("404")
}

// actions are each asked for, confirmed, done and seen.
func (b *browser) actions(w *world) {
	b.Helper()
	b.open("#/instances/key%3Aloan-1")
	b.click("button", "Signal…")
	b.usable("dialog")
	b.fill("Name", "chat")
	b.fill("Payload (JSON)", "{nonsense")
	b.click("dialog[open] button[type=submit]", "Send the signal")
	b.sees("That is no JSON")
	b.fill("Payload (JSON)", `{"text": 98765432109876543}`)
	b.confirm("Send the signal")
	b.sees("Signal chat is in the inbox", "98765432109876543")
	var inbox api.Page[api.Signal]
	w.ask("GET", "/v1/instances/key:loan-1/inbox", "", &inbox)
	if len(inbox.Items) != 1 || string(inbox.Items[0].Payload) != `{"text":98765432109876543}` || inbox.Items[0].SentBy == nil || *inbox.Items[0].SentBy != "admin" {
		b.Errorf("the inbox has %+v", inbox.Items)
	}

	b.click("button", "Update…")
	b.fill("Name", "decision")
	b.click("dialog[open] button[type=submit]", "Send the update")
	b.sees("Refused: a decision says whether it is approved")
	b.click("dialog[open] button", "Back")
	b.click("button", "Update…")
	b.fill("Name", "decision")
	b.fill("Argument (JSON)", `{"approved": true}`)
	b.confirm("Send the update")
	b.sees("a step took it")

	b.click("button", "Pause…")
	b.click("dialog[open] button", "Back")
	b.click("button", "Pause…")
	b.confirm("Pause")
	b.sees("Paused: its inbox fills")
	b.click("button", "Resume…")
	b.confirm("Resume")
	b.until("it goes on", `document.querySelector('.because')?.textContent.startsWith('Waits for')`)
	b.click("button", "▸")
	b.until("the child has none", `document.querySelector('.tree .tree')?.textContent === 'None.'`)
	b.click("button", "Cancel…")
	b.fill("Reason", "asked by the customer")
	b.fill("Its children too", "")
	b.confirm("Cancel the instance")
	b.sees("asked by the customer")
	for _, key := range []string{"loan-1", "child-1"} {
		if in := w.instance(key); in.Status != engine.StatusCanceled {
			b.Errorf("%s is %s", key, in.Status)
		}
	}
	b.click("button", "Retry…")
	b.confirm("Retry")
	b.until("it lives", `document.querySelector('.because')?.textContent.startsWith('Waits for')`)
	b.quiet("422")

	b.open("#/triggers/approval%3Ainvoice-9")
	b.click("button", "Send the event…")
	b.fill("Payload (JSON)", `{"approved": true}`)
	b.confirm("Send")
	b.sees("The event was received", "received")
	b.open("#/triggers/approval%3Ainvoice-10")
	b.click("button", "Cancel…")
	b.confirm("Cancel the trigger")
	b.sees("The trigger is canceled")

	b.open("#/routes/payments")
	b.click("button", "Pause…")
	b.confirm("Pause")
	b.sees("paused by operator", "Held back", "paused: by an operator")
	b.click("button", "Resume…")
	b.confirm("Resume")
	b.until("it is read again", `document.querySelector('.facts .badge')?.textContent === 'running'`)
	before, err := w.consumer("pointsman-payments")
	if err != nil {
		b.Fatal(err)
	}
	b.click("button", "Rewind…")
	b.fill("Sequence", "1")
	b.click("dialog[open] button[type=submit]", "Dry run")
	b.until("the dry run has counted", `document.querySelector('dialog')?.textContent.includes('Would be dead letters')`)
	b.usable("rewind")
	b.confirm("Rewind")
	b.sees("is read again from sequence 1 on")
	apptest.Eventually(w, "payments is read again", func() (bool, error) { // before it meets what is replayed
		info, err := w.consumer("pointsman-payments")
		return err == nil && info.Created.After(before.Created) && info.AckFloor.Consumer > 0 && info.NumPending == 0 && info.NumAckPending == 0, fmt.Errorf("%+v, %w", info, err)
	})

	b.letters(w)

	b.open("#/webhooks?status=failed")
	b.click("td button", "Retry…")
	b.confirm("Send again")
	b.sees("It is sent again")
	var hooks api.Page[api.WebhookDelivery]
	w.ask("GET", "/v1/webhook-deliveries?status=failed", "", &hooks)
	if len(hooks.Items) == 0 {
		b.Fatal("no webhook has failed")
	}
	b.open("#/webhooks/" + hooks.Items[0].ID)
	b.click("button", "Retry…")
	b.confirm("Send again")
	b.sees("It is sent again")

	b.open("#/messages")
	b.fill("Stream", "ORDERS")
	b.fill("Sequence", "1")
	b.click("button", "Look it up")
	b.sees("started", "orders.order-0.placed")
	for theme, next := range map[string]string{"auto": "light", "light": "dark", "dark": "auto"} {
		eval[bool](b, `(localStorage.setItem('pointsman-theme', `+quote(theme)+`), true)`)
		b.open("#/messages")
		b.click("button", "Theme: "+theme)
		b.until("the theme is "+next, `(document.documentElement.dataset.theme ?? 'auto') === `+quote(next)+` && localStorage.getItem('pointsman-theme') === `+quote(next))
	}
	b.do(chromedp.EmulateViewport(390, 844))
	b.open("#/messages")
	if at := eval[float64](b, `document.querySelector('nav a[aria-current]').getBoundingClientRect().right`); at > 390 {
		b.Errorf("on a phone the line of pages has the present one at %v", at)
	}
	b.do(chromedp.EmulateViewport(1280, 860))
	b.quiet()
}

func (b *browser) letters(w *world) {
	b.Helper()
	var page api.Page[api.DeadLetter]
	w.ask("GET", "/v1/dead-letters?route=payments", "", &page)
	if len(page.Items) != 3 {
		b.Fatalf("%d dead letters", len(page.Items))
	}
	of := func(subject string) string {
		for _, l := range page.Items {
			if *l.Subject == subject {
				return fmt.Sprintf("#/dead-letters/%d", l.Seq)
			}
		}
		b.Fatalf("there is no dead letter of %s", subject)
		return ""
	}
	b.open(of("orders.nobody-3.paid"))
	b.sees("nobody-3", "Headers")
	b.click("button", "Replay…")
	b.confirm("Replay")
	b.sees("It was refused again, and stays")
	b.click("button", "Drop…")
	b.confirm("Drop")
	b.sees("The dead letter is dropped")
	b.until("it is back at the list", `location.hash === '#/dead-letters'`)
	w.ask("POST", "/v1/instances", `{"machine": "order", "correlation_key": "nobody-1", "state": {"amount": 1, "items": 1}}`, nil)
	b.open(of("orders.nobody-1.paid"))
	b.sees("12345678901234567", "<b>bold</b>")
	b.usable("dead-letter")
	b.click("button", "Replay…")
	b.confirm("Replay")
	b.sees("It is delivered now")
	b.open("#/dead-letters")
	b.click("button", "Replay many…")
	b.fill("Route (empty: any)", "payments")
	b.click("dialog[open] button[type=submit]", "Dry run")
	b.confirm("Replay these")
	b.sees("1 dead-lettered") // nobody-2 is still nobody
	b.click("button", "Drop many…")
	b.fill("Route (empty: any)", "payments")
	b.click("dialog[open] button[type=submit]", "Dry run")
	b.confirm("Drop these")
	b.sees("There are none.")
	w.ask("GET", "/v1/dead-letters?route=payments", "", &page)
	if len(page.Items) != 0 {
		b.Errorf("%d dead letters are left", len(page.Items))
	}
}

// keyboard is enough to get everywhere.
func (b *browser) keyboard() {
	b.Helper()
	b.open("#/")
	b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent("i"))
	b.until("g i leads to the instances", `document.querySelector('#content[data-ready] h1')?.textContent === 'Instances' && document.querySelector('#content tbody a')`)
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("k"))
	first := eval[string](b, `document.querySelector('tbody a').hash`)
	if at := eval[string](b, `document.activeElement.hash ?? ''`); at != first {
		b.Errorf("j j k is at %q, want %q", at, first)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("Enter opens it", `location.hash === `+quote(first))
	b.do(chromedp.KeyEvent("/"))
	b.until("/ leads to the search", `document.activeElement.matches('.find input')`)
	eval[bool](b, `(document.activeElement.value = '', true)`) // the protocol types the character too, which a keyboard would not
	b.do(chromedp.KeyEvent("order-3"), chromedp.KeyEvent(kb.Enter))
	b.until("the search finds it", `location.hash.includes('correlation_prefix=order-3')`)
	b.do(chromedp.KeyEvent("?"))
	b.until("? is answered", `document.querySelector('dialog[open]')`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("Esc leaves", `!document.querySelector('dialog')`)
	b.quiet()
}

// hostile texts stay texts, and the browser would not take them for more.
func (b *browser) hostile() {
	b.Helper()
	b.open("#/instances/key%3Acharge-1")
	b.sees(hostile)
	if title := eval[string](b, `document.title`); strings.Contains(title, "owned") || eval[bool](b, `Boolean(document.querySelector('#content img, #content script'))`) {
		b.Errorf("a text was taken for markup: %s", title)
	}
	for _, attempt := range []string{`document.body.innerHTML = '<b>x</b>'`, `document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = true'}))`} {
		if got := eval[string](b, `(() => { try { `+attempt+`; return 'done' } catch (err) { return err.name } })()`); got != "TypeError" || eval[bool](b, `Boolean(window.owned)`) {
			b.Errorf("%s: %s", attempt, got)
		}
	}
	b.quiet("Trusted")
}

// scopes: with an API key what is of no project is not shown, and says why; what the key may not do is refused in the dialog.
func (b *browser) scopes(w *world) {
	b.Helper()
	key := w.key("default")
	b.click("button", "Log out")
	b.fill("API key or admin token", key)
	b.click("button", "Log in")
	b.open("#/")
	b.sees("Needs attention", "Latest failures")
	b.usable("overview-key")
	b.open("#/routes")
	b.sees("they take the admin token")
	b.open("#/instances/key%3Acharge-2")
	b.click("button", "Retry…")
	b.click("dialog[open] button[type=submit]", "Retry")
	b.sees("this takes the scope admin, and the API key has read")
	b.click("dialog[open] button", "Back")
	b.quiet("403")
	w.revoke()
	b.until("a key that is revoked leads back to the login", `document.querySelector('#login').checkVisibility() && !document.querySelector('.frame')`)
	b.sees("The token is not known, or was revoked.")
	b.quiet("401", "403")
}
