package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/app"
)

// auditReport is what audit writes as JSON.
type auditReport struct {
	Route    string         `json:"route"`
	Stream   string         `json:"stream"`
	OK       bool           `json:"ok"`
	First    uint64         `json:"first"`
	Last     uint64         `json:"last"`
	Floor    uint64         `json:"ack_floor"`
	Messages int            `json:"messages"`
	Fates    map[string]int `json:"fates"`
	Pending  uint64         `json:"pending"`
	Deleted  uint64         `json:"deleted"`
	Found    []auditFinding `json:"found"` // the first 1,000
}

type auditFinding struct {
	Seq     uint64 `json:"seq"`
	Subject string `json:"subject"`
	Fate    string `json:"fate"`
	Reason  string `json:"reason"`
}

func auditCommand(o *options) *cobra.Command {
	n := o.connection()
	var since, until string
	var request bridge.AuditRequest
	c := &cobra.Command{
		Use: "audit --route ROUTE", Short: "Prove that every message that a route has acked has one fate",
		Long: `audit reads the route's stream up to where its consumer has acked all, the dead letters and the database, and asks no bridge: it needs
the configuration of one. Each message has to be in an inbox or consumed, held, a start, a duplicate of one of these, filtered, dropped as the
route asks, or a dead letter. What is none of these is lost, what is taken in and a dead letter too is twice: these are printed, and the exit
status is 1. Filtered and dropped leave no record: they are concluded from the route as the configuration has it. A message without a record
that is older than retention.dedup is unknown. letter-dropped is one whose dead letter was dropped on purpose (dlq drop), letter-gone one that
the route refuses and whose dead letter was removed in another way, by the limits of its stream or by a purge. None of these is an error.`,
		Example: "  pointsman audit --route payments\n  pointsman audit --route payments --since 24h --json",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if request.Route == "" {
				return usage(c, errors.New("which route? Want --route"))
			}
			for _, f := range []struct {
				name, value string
				into        *time.Time
			}{{"since", since, &request.Since}, {"until", until, &request.Until}} {
				if f.value == "" {
					continue
				}
				if *f.into, err = moment(f.value); err != nil {
					return usage(c, fmt.Errorf("--%s: %w", f.name, err))
				}
			}
			return n.audit(c, request)
		},
	}
	c.Flags().StringVar(&request.Route, "route", "", "which route")
	c.Flags().StringVar(&since, "since", "", "messages since a time (2026-01-31T12:00:00Z) or for a while (24h); default: all")
	c.Flags().StringVar(&until, "until", "", "messages up to a time")
	n.flag(c, "route", routeNames)
	return n.addNATS(c)
}

func (n *connection) audit(c *cobra.Command, request bridge.AuditRequest) error {
	cfg, nc, err := n.dial(c)
	if err != nil {
		return err
	}
	defer nc.Close()
	report := auditReport{Found: []auditFinding{}}
	out, told := c.OutOrStdout(), time.Now()
	request.Progress = func(a bridge.Audit) {
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			fmt.Fprintf(c.ErrOrStderr(), "%d messages so far, up to sequence %d of %d\n", a.Messages, a.Last, a.Floor) //nolint:errcheck // the result counts
		}
	}
	request.Found = func(f bridge.Finding) {
		if len(report.Found) < 1000 {
			report.Found = append(report.Found, auditFinding(f))
		}
		if !n.json {
			fmt.Fprintln(out, oneLine(fmt.Sprintf("%s: sequence %d, %s: %s", f.Fate, f.Seq, f.Subject, f.Reason)))
		}
	}
	a, err := app.Audit(c.Context(), cfg, nc, request)
	if err != nil {
		return err
	}
	report.Route, report.Stream, report.OK, report.First, report.Last, report.Floor = a.Route, a.Stream, a.OK(), a.First, a.Last, a.Floor
	report.Messages, report.Fates, report.Pending, report.Deleted = a.Messages, a.Fates, a.Pending, a.Deleted
	if n.json {
		err = n.document(out, report)
	} else {
		err = n.print(out, report.table())
	}
	if err != nil || a.OK() {
		return err
	}
	return fmt.Errorf("audit of %s: %d messages are lost, %d have two fates", a.Route, a.Fates[bridge.FateLost], a.Fates[bridge.FateTwice])
}

func (r auditReport) table() *table {
	t := newTable()
	t.add("route", r.Route)
	t.add("stream", r.Stream)
	t.add("messages", fmt.Sprint(r.Messages))
	for _, fate := range slices.Sorted(maps.Keys(r.Fates)) {
		t.add(fate, fmt.Sprint(r.Fates[fate]))
	}
	t.add("pending", fmt.Sprint(r.Pending))
	t.add("not there any more", fmt.Sprint(r.Deleted))
	return t
}
