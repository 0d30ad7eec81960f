package devenv

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"
)

// counts are what is known while the traffic runs.
type counts struct {
	sent, all     int // publications
	ended, orders int
}

func (c counts) String() string {
	return fmt.Sprintf("published %d of %d, orders ended %d of %d", c.sent, c.all, c.ended, c.orders)
}

// lineEvery is how often the counts are printed where there is no terminal.
const lineEvery = 2 * time.Second

// progress shows counts: on a terminal as a bar, elsewhere as a line now and then. say may be called from any goroutine, the rest from one.
type progress struct {
	mu     sync.Mutex // of out
	out    io.Writer
	bars   *mpb.Progress // nil: no terminal
	bar    *mpb.Bar
	latest atomic.Pointer[counts] // the bar reads it when it likes
	shown  counts
	next   time.Time
}

func newProgress(out io.Writer, c counts) *progress {
	p := &progress{out: out, shown: c, next: time.Now().Add(lineEvery)}
	p.latest.Store(&c)
	if f, ok := out.(*os.File); !ok || !cwriter.IsTerminal(int(f.Fd())) {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(30))
	p.bar = p.bars.AddBar(int64(c.all+c.orders), mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return p.latest.Load().String() })))
	return p
}

func (p *progress) show(c counts) {
	p.latest.Store(&c)
	switch {
	case p.bar != nil:
		p.bar.SetCurrent(int64(c.sent + c.ended))
	case c != p.shown && time.Now().After(p.next):
		p.shown, p.next = c, time.Now().Add(lineEvery)
		p.say("%s", c)
	}
}

// say prints a line, above the bar where there is one.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.out
	if p.bars != nil {
		out = p.bars
	}
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// end leaves the last state on the screen.
func (p *progress) end() {
	if p.bars != nil {
		p.bar.Abort(false)
		p.bars.Wait()
		p.bars = nil
	}
}
