package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func routesCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "routes", Short: "Check, try and operate routes", Args: args(cobra.NoArgs),
		Example: "  pointsman routes check pointsman.yaml\n  pointsman routes test payments.1001.confirmed '{\"amount\": 42}'",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(routesCheckCommand(o), routesTestCommand(o),
		routesListCommand(o), routesPauseCommand(o), routesResumeCommand(o), routesRewindCommand(o),
		routesPlanCommand(o), routesApplyCommand(o), routesPermissionsCommand(o))
	return c
}

// fileCheck is what is said of one configuration file.
type fileCheck struct {
	File   string    `json:"file"`
	OK     bool      `json:"ok"`
	Routes int       `json:"routes"`
	Errors []problem `json:"errors"`
	// Warnings are of what is allowed and is probably not meant.
	Warnings []problem `json:"warnings"`

	warned config.Errors
	found  config.Errors
}

// problem is one thing that is wrong with a file.
type problem struct {
	Line   int    `json:"line"` // 0: of none
	Column int    `json:"column"`
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

func routesCheckCommand(o *options) *cobra.Command {
	out := &output{}
	c := &cobra.Command{
		Use: "check [FILE...]", Short: "Check configuration files",
		Long: `check reads configuration files as the bridge does, and prints all that is wrong with each, with file, line and column. It asks no
server. The exit status is 2 where something is wrong. What is allowed and is probably not meant, as two routes that make one signal of a
message, is a warning. Without FILE it is that of --config, or pointsman.yaml.`,
		Example: "  pointsman routes check pointsman.yaml\n  pointsman routes check --json deploy/*.yaml", Args: args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, files []string) error {
			if len(files) == 0 {
				files = []string{o.file()}
			}
			var wrong config.Errors
			checks := make([]fileCheck, len(files))
			for i, file := range files {
				check, err := checkFile(file)
				if err != nil {
					return usage(c, err)
				}
				checks[i] = check
				wrong = append(wrong, check.found...)
			}
			return reportChecks(c.OutOrStdout(), checks, wrong, out)
		},
	}
	out.addOutput(c)
	return c
}

// file of the configuration, where no other is named.
func (o *options) file() string {
	if o.config != "" {
		return o.config
	}
	return defaultConfig
}

func checkFile(file string) (fileCheck, error) {
	check := fileCheck{File: file, Errors: []problem{}, Warnings: []problem{}}
	cfg, err := config.Load(file, os.LookupEnv)
	if err == nil {
		check.Routes = len(cfg.Routes)
		_, err = app.Mapper(cfg)
	}
	switch {
	case err == nil:
		check.OK = true
		check.warned = cfg.Warnings()
	case errors.As(err, &check.found):
	case cfg != nil: // what the bridge alone checks has no place in the file
		check.found = config.Errors{{File: file, Reason: err.Error()}}
	default:
		return check, err
	}
	check.Errors, check.Warnings = append(check.Errors, problems(check.found)...), append(check.Warnings, problems(check.warned)...)
	return check, nil
}

func problems(errs config.Errors) (all []problem) {
	for _, e := range errs {
		all = append(all, problem{e.Line, e.Column, e.Field, e.Reason})
	}
	return all
}

func reportChecks(w io.Writer, checks []fileCheck, wrong config.Errors, out *output) error {
	if out.json {
		if err := out.document(w, map[string]any{"files": checks}); err != nil {
			return err
		}
	}
	for _, check := range checks {
		if check.OK && !out.json {
			if _, err := fmt.Fprintf(w, "%s: ok, %d routes\n", check.File, check.Routes); err != nil {
				return err
			}
			for _, e := range check.warned {
				if _, err := fmt.Fprintf(w, "warning: %s\n", e); err != nil {
					return err
				}
			}
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

func routesTestCommand(o *options) *cobra.Command {
	n := o.connection()
	var flags []string
	var stream string
	var live bool
	c := &cobra.Command{
		Use: "test SUBJECT [DATA]", Short: "Try a message on the routes",
		Long: `test says which routes read a message, and what they would make of it: key, signal, dedup key, and what becomes of it and why. It takes
nothing in. The routes are those of --config or pointsman.yaml, and no server is asked; with --live they are those of the bridge that runs,
which looks up who has the key. DATA is the body: text, @FILE, or - for the standard input.`,
		Example: `  pointsman routes test payments.1001.confirmed '{"amount": 42}'
  pointsman routes test payments.1001.confirmed @payment.json --header 'Nats-Msg-Id: evt-7'
  pointsman routes test orders.1001.item '{"sku": "cup"}' --live`,
		Args: args(cobra.RangeArgs(1, 2)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			request := api.TestRequest{Subject: args[0], Stream: stream}
			var err error
			if request.Headers, err = headers(c, flags); err != nil {
				return err
			}
			if len(args) > 1 {
				if request.Base64, err = content(c, args[1]); err != nil {
					return err
				}
			}
			if !live {
				return n.testOffline(c, request)
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				var tests api.RoutesTest
				if err := s.ask(ctx, natsapi.VerbRoutesTest, request, &tests); err != nil {
					return err
				}
				return n.showTests(s.out, tests)
			})
		},
	}
	c.Flags().StringArrayVar(&flags, "header", nil, "\"Name: value\"; may be repeated")
	c.Flags().StringVar(&stream, "stream", "", "the stream it stands in (default: any that takes the subject)")
	c.Flags().BoolVar(&live, "live", false, "ask the bridge that runs")
	return n.add(c)
}

func (n *connection) testOffline(c *cobra.Command, request api.TestRequest) error {
	if _, err := os.Stat(n.file()); err != nil {
		return usage(c, fmt.Errorf("%w: name the file of the routes with --config, or ask the bridge that runs with --live", err))
	}
	cfg, err := n.load(c)
	if err != nil {
		return err
	}
	mapper, err := app.Mapper(cfg)
	if err != nil {
		return err
	}
	tests, err := api.TestRoutes(mapper, request)
	if err != nil {
		return usage(c, err)
	}
	return n.showTests(c.OutOrStdout(), tests)
}

// showTests fails where no route reads the message.
func (n *connection) showTests(w io.Writer, tests api.RoutesTest) error {
	if n.json {
		if err := n.document(w, tests); err != nil {
			return err
		}
	}
	matched := false
	t := newTable()
	for _, r := range tests.Routes {
		matched = matched || r.Matched
		if !r.Matched {
			t.add(r.Route, r.Reason)
			continue
		}
		if len(t.rows) > 0 {
			t.add("")
		}
		addTest(t, r)
	}
	if !n.json {
		if err := n.print(w, t); err != nil {
			return err
		}
	}
	if !matched {
		return errors.New("no route reads this message")
	}
	return nil
}

func addTest(t *table, r api.RouteTest) {
	t.add("route", r.Route)
	t.add("stream", r.Stream)
	for _, to := range r.Targets {
		t.pair("key", text(to.CorrelationKey))
		t.pair("instance", text(to.InstanceID))
	}
	t.pair("signal", text(r.Signal))
	if s := r.Start; s != nil {
		t.add("starts", strings.TrimSuffix(fmt.Sprintf("%s, version %d", s.Machine, s.Version), ", version 0"))
		t.pair("state", document(s.State))
	}
	t.pair("payload", document(r.Payload))
	if len(r.Targets) > 0 {
		dedup := text(r.DedupKey)
		if dedup == "" {
			dedup = "its place in the stream: it has no id"
		}
		t.add("dedup key", dedup)
	}
	if r.Result == nil {
		t.add("becomes", r.Reason)
		return
	}
	t.add("becomes", *r.Result)
	t.pair("because", r.Reason)
}
