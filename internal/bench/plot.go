package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPlot: nothing in this report goes by a number.
var ErrNoPlot = errors.New("this benchmark has no plot: scale and backlog do")

// Plot writes an SVG: of scale, what comes through and, where all of it does, p99 against the load that is offered; of backlog, the cost of each statement
// against the instances that are parked, and that of a cycle against the signals in an inbox.
func (r *Report) Plot(out io.Writer) error {
	var charts []chart
	switch r.Benchmark {
	case "scale":
		charts = r.scaleCharts()
	case "backlog":
		charts = r.backlogCharts()
	default:
		return ErrNoPlot
	}
	return draw(out, charts)
}

func (r *Report) scaleCharts() []chart {
	through := chart{title: "throughput", x: "offered, cycles/s", y: "through, cycles/s"}
	late := chart{title: "publish to answer, p99", x: "offered, cycles/s", y: "ms"}
	for _, c := range r.Cases {
		m := c.Sides[0].Metrics
		offered, steady := m["offered_per_second"]
		if !steady || c.Name == "soak" {
			continue
		}
		through.add("through", offered.Median, m[rate].Median)
		if v, ok := m[p99]; ok && m[rate].Median >= comesThrough*offered.Median { // else it grows for as long as it is offered
			late.add("p99", offered.Median, v.Median/1e3)
			late.add("p50", offered.Median, m[p50].Median/1e3)
		}
	}
	return []chart{through, late}
}

func (r *Report) backlogCharts() []chart {
	cost := chart{title: "cost of a statement, p50", x: "parked instances", y: "ms", logarithmic: true}
	deep := chart{title: "cost of a cycle, p50", x: "other signals in the inbox", y: "ms", logarithmic: true}
	for _, c := range r.Cases {
		to := &cost
		if c.Name == "inbox" {
			to = &deep
		}
		for _, s := range c.Sides {
			size, err := strconv.Atoi(s.Name)
			if err == nil {
				to.add(c.Name, float64(size), s.Metrics[p50].Median/1e3)
			}
		}
	}
	return []chart{cost, deep}
}

// chart is lines over one another.
type chart struct {
	title, x, y string
	logarithmic bool // x
	lines       []line
}

type line struct {
	name   string
	points [][2]float64
}

func (c *chart) add(name string, x, y float64) {
	i := slices.IndexFunc(c.lines, func(l line) bool { return l.name == name })
	if i < 0 {
		c.lines, i = append(c.lines, line{name: name}), len(c.lines)
	}
	c.lines[i].points = append(c.lines[i].points, [2]float64{x, y})
	slices.SortFunc(c.lines[i].points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
}

const (
	chartWidth, chartHeight = 520, 320
	left, right, top, below = 70, 20, 40, 50
)

var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd"}

// draw charts beside one another. The text is ours throughout: nothing in it needs escaping.
func draw(out io.Writer, charts []chart) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth*len(charts), chartHeight)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d,0)">`+"\n", i*chartWidth)
		c.draw(&b)
		fmt.Fprintln(&b, `</g>`)
	}
	fmt.Fprintln(&b, `</svg>`)
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *chart) draw(b *strings.Builder) {
	const w, h = chartWidth - left - right, chartHeight - top - below
	minX, maxX, maxY := math.Inf(1), 1.0, 0.0
	for _, l := range c.lines {
		for _, p := range l.points {
			minX, maxX, maxY = min(minX, p[0]), max(maxX, p[0]), max(maxY, p[1])
		}
	}
	topY := niceAbove(maxY)
	x := func(v float64) float64 { return left + w*v/niceAbove(maxX) }
	ticks := []float64{0, niceAbove(maxX) / 4, niceAbove(maxX) / 2, niceAbove(maxX) * 3 / 4, niceAbove(maxX)}
	if c.logarithmic {
		from, to := math.Floor(math.Log10(max(1, minX))), math.Ceil(math.Log10(maxX))
		to = max(to, from+1)
		x = func(v float64) float64 { return left + w*(math.Log10(v)-from)/(to-from) }
		ticks = nil
		for e := from; e <= to; e++ {
			ticks = append(ticks, math.Pow(10, e))
		}
	}
	y := func(v float64) float64 { return top + h - h*v/topY }
	fmt.Fprintf(b, `<text x="%d" y="20" font-size="14" text-anchor="middle">%s</text>`+"\n", left+w/2, c.title)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %d)">%s</text>`+"\n", left+w/2, chartHeight-10, c.x, top+h/2, top+h/2, c.y)
	for _, v := range ticks {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(v), top, x(v), top+h, x(v), top+h+16, short(v))
	}
	for i := range 5 {
		v := topY * float64(i) / 4
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(v), left+w, y(v), left-6, y(v)+4, short(v))
	}
	for i, l := range c.lines {
		colour := colours[i%len(colours)]
		var points []string
		for _, p := range l.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(p[1])))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(p[0]), y(p[1]), colour)
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", strings.Join(points, " "), colour, left+8, top+14+14*i, colour, l.name)
	}
}

// niceAbove is a round number that is not below v.
func niceAbove(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 4, 5, 8, 10} {
		if n*unit >= v {
			return n * unit
		}
	}
	return 10 * unit
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
