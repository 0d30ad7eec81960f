package dashboard_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience with the browser, on a machine that does other things too.
const patience = 90 * time.Second

//go:embed testdata/audit.js
var audit string

// browser is a tab of a real one.
type browser struct {
	*testing.T
	ctx context.Context
	url string

	mu   sync.Mutex
	said []string // errors on the console
	late []string // parts of those that were expected at the last look
}

// newBrowser starts a Chromium that ends with the test. Where there is none the test is skipped, and fails when CI is "true".
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	switch {
	case program == "" && os.Getenv("CI") == "true":
		t.Fatal("the dashboard is not tested: there is no chromium on this machine")
	case program == "":
		t.Skip("the dashboard is not tested: there is no chromium on this machine")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, // it shows our own page alone
		chromedp.Flag("lang", "en-US"), chromedp.Flag("hide-scrollbars", true))
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, _ := chromedp.NewContext(allocator)
	b := &browser{T: t, ctx: ctx}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 860)); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	listened := make(chan struct{})
	console := chromedp.Console(ctx)
	go func() {
		defer close(listened)
		for m, err := range console {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				b.mu.Lock()
				b.said = append(b.said, m.String()+" "+m.URL)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		bound, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := chromedp.Cancel(bound); err != nil {
			t.Errorf("stop the browser: %v", err)
		}
		stop()
		<-listened
	})
	return b
}

// quiet wants no errors on the console since the last look, but those of which the text has one of these, or of the look before: the console tells
// late of what the page knows already.
func (b *browser) quiet(but ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	allowed := slices.Concat(b.late, but)
	b.late = but
	for _, text := range b.said {
		expected := false
		for _, part := range allowed {
			expected = expected || strings.Contains(text, part)
		}
		if !expected {
			b.Errorf("console: %s", text)
		}
	}
	b.said = nil
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.picture("failure", 100)
		b.Fatal(err)
	}
}

// eval runs a script in the page.
func eval[T any](b *browser, script string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.Fatalf("%.300s: %v", script, err)
	}
	return v
}

// until waits for a script to be true.
func (b *browser) until(what, script string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+script+")", chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience))); err != nil {
		b.picture("failure", 100)
		b.Fatalf("never: %s: %v: the page shows %.2000q", what, err, eval[string](b, `document.body.innerText`))
	}
}

func quote(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// sees waits for texts in the page.
func (b *browser) sees(texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.until("the page has "+text, "document.body.innerText.includes("+quote(text)+")")
	}
}

// open a page of the dashboard, and wait until it has something to show.
func (b *browser) open(hash string) {
	b.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.url+"/"+hash))
	b.until("the page "+hash+" is ready", `document.querySelector("#content[data-ready]")`)
}

// click what has a text, as a pointer would: it has to be in front.
func (b *browser) click(selector, text string) {
	b.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%s)].find((el) => el.checkVisibility() && !el.disabled && el.textContent.trim() === %s)`, quote(selector), quote(text))
	b.until("there is a "+selector+" "+text, find)
	hit := eval[string](b, fmt.Sprintf(`(() => {
		const el = %s;
		el.scrollIntoView({block: 'center'});
		const r = el.getBoundingClientRect(), front = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
		if (!el.contains(front)) return 'behind ' + front?.outerHTML.slice(0, 200);
		el.click();
		return '';
	})()`, find))
	if hit != "" {
		b.Fatalf("%s %s cannot be clicked: it is %s", selector, text, hit)
	}
}

// fill the field with this label, in the dialog where there is one.
func (b *browser) fill(label, value string) {
	b.Helper()
	field := fmt.Sprintf(`[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('label')].find((l) => l.textContent === %s)?.control`, quote(label))
	b.until("there is a field "+label, field)
	eval[bool](b, fmt.Sprintf(`(() => { const el = %s; el.type === 'checkbox' ? el.checked = true : el.value = %s; el.dispatchEvent(new Event('input', {bubbles: true})); return true })()`, field, quote(value)))
}

// confirm the dialog, and wait until it is gone.
func (b *browser) confirm(text string) {
	b.Helper()
	b.click("dialog[open] button[type=submit]", text)
	b.until("the dialog is gone", `!document.querySelector('dialog[open]')`)
}

// usable wants a page that everybody can use, in both themes and on a phone.
func (b *browser) usable(name string) {
	b.Helper()
	for _, look := range []struct {
		theme         string
		width, height int64
	}{{"light", 1280, 860}, {"dark", 1280, 860}, {"light", 390, 844}} {
		b.do(chromedp.EmulateViewport(look.width, look.height))
		eval[bool](b, `(document.documentElement.dataset.theme = `+quote(look.theme)+`, true)`)
		as := look.theme
		if look.width < 600 {
			as = "phone"
		}
		for _, wrong := range eval[[]string](b, audit) {
			b.Errorf("%s, %s: %s", name, as, wrong)
		}
		b.picture(name+"-"+as, 100)
	}
	b.do(chromedp.EmulateViewport(1280, 860))
}

// picture is kept where POINTSMAN_TEST_SCREENSHOTS says, if it does.
func (b *browser) picture(name string, quality int) {
	b.Helper()
	dir := os.Getenv("POINTSMAN_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(quality))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644)
	}
	if err != nil {
		b.Errorf("screenshot %s: %v", name, err)
	}
}
