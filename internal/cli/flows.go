package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/dag"
)

func flowsCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "flows", Short: "Check, draw and try flows", Args: args(cobra.NoArgs),
		Example: "  pointsman flows check pointsman.yaml\n  pointsman flows graph kyc\n  pointsman flows simulate kyc --payload '{\"user_id\": \"u1\"}'",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(flowsCheckCommand(o), flowsGraphCommand(o), flowsSimulateCommand(o))
	return c
}

// flowsCheck is what is said of the flows of one configuration file.
type flowsCheck struct {
	File   string    `json:"file"`
	OK     bool      `json:"ok"`
	Flows  []flowRow `json:"flows"`
	Errors []problem `json:"errors"`

	found config.Errors
}

type flowRow struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Steps   int    `json:"steps"`
}

func flowsCheckCommand(o *options) *cobra.Command {
	out := &output{}
	c := &cobra.Command{
		Use: "check [FILE...]", Short: "Check the flows of configuration files",
		Long: `check reads configuration files as the worker does, and prints all that is wrong with each, with file, line and column: cycles, refs that there
are not, steps that can never run, expressions that name what a step does not depend on, fields that are missing or unknown. It asks no server.
The exit status is 2 where something is wrong. Without FILE it is that of --config, or pointsman.yaml.`,
		Example: "  pointsman flows check pointsman.yaml\n  pointsman flows check --json deploy/*.yaml", Args: args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, files []string) error {
			if len(files) == 0 {
				files = []string{o.file()}
			}
			var wrong config.Errors
			checks := make([]flowsCheck, len(files))
			for i, file := range files {
				check, err := checkFlows(file)
				if err != nil {
					return usage(c, err)
				}
				checks[i] = check
				wrong = append(wrong, check.found...)
			}
			if err := showFlowChecks(c.OutOrStdout(), checks, out); err != nil {
				return err
			}
			if len(wrong) > 0 {
				return wrong
			}
			return nil
		},
	}
	out.addOutput(c)
	return c
}

func checkFlows(file string) (flowsCheck, error) {
	check := flowsCheck{File: file, Flows: []flowRow{}, Errors: []problem{}}
	cfg, err := config.Load(file, os.LookupEnv)
	switch {
	case err == nil:
		check.OK = true
		for _, f := range cfg.Flows {
			check.Flows = append(check.Flows, flowRow{f.Name, f.Version, len(f.Steps)})
		}
	case !errors.As(err, &check.found):
		return check, err
	}
	check.Errors = append(check.Errors, problems(check.found)...)
	return check, nil
}

func showFlowChecks(w io.Writer, checks []flowsCheck, out *output) error {
	if out.json {
		return out.document(w, map[string]any{"files": checks})
	}
	for _, check := range checks {
		if !check.OK {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: ok, %d flows\n", check.File, len(check.Flows)); err != nil {
			return err
		}
	}
	return nil
}

// flowOf finds a flow of the configuration: the newest version of that name, or the only flow that there is.
func (o *options) flowOf(c *cobra.Command, args []string, version int) (found *dag.Flow, err error) {
	if _, err := os.Stat(o.file()); err != nil {
		return nil, usage(c, fmt.Errorf("%w: name the file of the flows with --config", err))
	}
	cfg, err := o.load(c)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, f := range cfg.Flows {
		names[f.Name] = true
		if (len(args) == 0 || f.Name == args[0]) && (version == 0 || f.Version == version) && (found == nil || f.Version > found.Version) {
			found = f.Flow
		}
	}
	switch {
	case len(args) == 0 && len(names) > 1:
		return nil, usage(c, errors.New("there are several flows: name one"))
	case found == nil:
		return nil, usage(c, fmt.Errorf("%s has no such flow", o.file()))
	}
	return found, nil
}

func flowsGraphCommand(o *options) *cobra.Command {
	var version int
	out := &output{}
	c := &cobra.Command{
		Use: "graph [FLOW]", Short: "Draw a flow, as Mermaid",
		Long: `graph prints the graph of a flow of --config, or pointsman.yaml, as text that Mermaid makes a picture of, as many wikis and code hosts do by
themselves. An arrow is dashed where the flow goes on if the step before it fails, and to what undoes a step. FLOW may be left out where there is only one.`,
		Example: "  pointsman flows graph kyc --config pointsman.yaml", Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			f, err := o.flowOf(c, args, version)
			if err != nil {
				return err
			}
			if out.json {
				return out.document(c.OutOrStdout(), map[string]any{"name": f.Name, "version": f.Version, "mermaid": f.Mermaid()})
			}
			_, err = io.WriteString(c.OutOrStdout(), f.Mermaid())
			return err
		},
	}
	c.Flags().IntVar(&version, "version", 0, "of the flow (default: the newest)")
	out.addOutput(c)
	return c
}

func flowsSimulateCommand(o *options) *cobra.Command {
	var version int
	var payload, answers string
	out := &output{}
	c := &cobra.Command{
		Use: "simulate [FLOW]", Short: "Try a flow with answers that are given",
		Long: `simulate runs a flow of --config, or pointsman.yaml, to its end with answers that it is told, and prints which step begins and ends when, and with
what. It asks no server, and no service. --answers says what steps come to, as YAML or JSON: text, @FILE, or - for the standard input.
An answer has an output, or an error, and how long it takes; a wait with an error is one whose time is over. What is not said gets null at
once, and sleeps take their time. The answer of a step with for_each is that of each item, or of one as ship/0; that of a compensation is
reserve/compensate. Conditions on signals, which Postgres decides, are shown and not tried. The exit status is 1 where the flow fails.`,
		Example: `  pointsman flows simulate kyc --payload '{"user_id": "u1"}'
  pointsman flows simulate order --payload @order.json --answers 'paid: {error: too late, after: 24h}'`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			f, err := o.flowOf(c, args, version)
			if err != nil {
				return err
			}
			body, err := content(c, payload)
			if err != nil {
				return err
			}
			told, err := readAnswers(c, answers)
			if err != nil {
				return err
			}
			sim, err := dag.Simulate(f, body, told)
			if err != nil {
				return usage(c, err)
			}
			if err := showSimulation(c.OutOrStdout(), sim, out); err != nil {
				return err
			}
			if sim.Reason != "" {
				return errors.New(sim.Reason)
			}
			return nil
		},
	}
	c.Flags().IntVar(&version, "version", 0, "of the flow (default: the newest)")
	c.Flags().StringVar(&payload, "payload", "{}", "what the flow is started with: JSON, @FILE or -")
	c.Flags().StringVar(&answers, "answers", "", "what steps come to: YAML, @FILE or -")
	out.addOutput(c)
	return c
}

func readAnswers(c *cobra.Command, arg string) (map[string]dag.Answer, error) {
	text, err := content(c, arg)
	if err != nil || len(strings.TrimSpace(string(text))) == 0 {
		return nil, err
	}
	doc, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, usage(c, fmt.Errorf("--answers: %w", err))
	}
	var read map[string]struct {
		dag.Answer
		After string `json:"after"`
	}
	d := json.NewDecoder(strings.NewReader(string(doc)))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return nil, usage(c, fmt.Errorf("--answers: %w: want step: {output: …, error: …, after: 5s}", err))
	}
	told := map[string]dag.Answer{}
	for ref, a := range read {
		answer := a.Answer
		if a.After != "" {
			if answer.After, err = time.ParseDuration(a.After); err != nil {
				return nil, usage(c, fmt.Errorf("--answers: %s.after: %w", ref, err))
			}
		}
		told[ref] = answer
	}
	return told, nil
}

func showSimulation(w io.Writer, sim *dag.Simulation, out *output) error {
	if out.json {
		return out.document(w, sim)
	}
	t := newTable("AT", "STEP", "TYPE", "EVENT", "DETAIL")
	for _, e := range sim.Events {
		t.add(e.Time, e.Ref, string(e.Type), e.What, short(e.Detail, 100))
	}
	if err := t.write(w); err != nil {
		return err
	}
	if sim.Result == nil {
		return nil
	}
	result, err := json.Marshal(sim.Result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nresult: %s\n", result)
	return err
}
