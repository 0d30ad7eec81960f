package dashboard_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPictures makes those of README.md, while messages come. It is run when asked for, as it only looks.
func TestPictures(t *testing.T) {
	if os.Getenv("POINTSMAN_TEST_SCREENSHOTS") == "" || os.Getenv("POINTSMAN_TEST_LONG") == "" {
		t.Skip("takes pictures when POINTSMAN_TEST_SCREENSHOTS and POINTSMAN_TEST_LONG are set")
	}
	b := newBrowser(t)
	w := newWorld(t)
	b.url = w.url
	b.do(chromedp.Navigate(b.url + "/"))
	b.fill("API key or admin token", token)
	b.click("button", "Log in")
	b.sees("Needs attention")
	for n, end := 0, time.Now().Add(80*time.Second); time.Now().Before(end); n++ {
		key := fmt.Sprintf("shop-%d", n)
		w.stack.Publish(w, "orders."+key+".placed", `{"amount": 42, "items": 1}`)
		w.stack.Publish(w, "orders."+key+".item", `{"sku": "cup"}`)
		if n%3 > 0 {
			w.stack.Publish(w, "orders."+key+".paid", `{"amount": 42}`)
		}
		time.Sleep(time.Duration(20+15*(n/20%7)) * time.Millisecond)
	}
	b.do(chromedp.EmulateViewport(1180, 800))
	b.shot("dashboard-overview")
	eval[bool](b, `(location.hash = '#/instances/key%3Aloan-1', document.documentElement.dataset.theme = 'dark', true)`)
	b.sees("Timeline", "child-1")
	b.shot("dashboard-instance")
}

// shot is what is in the window.
func (b *browser) shot(name string) {
	b.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(os.Getenv("POINTSMAN_TEST_SCREENSHOTS")+"/"+name+".png", image, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}
