package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/cli"
)

// Every command has an example, and every example is a call that the command takes.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	for _, c := range all(cli.Pointsman()) {
		path := strings.Fields(c.CommandPath())
		if len(path) == 1 || c.Hidden {
			continue
		}
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: has no short help, or no example", c.CommandPath())
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			checkExample(t, c, line)
		}
	}
}

func all(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		list = append(list, all(sub)...)
	}
	return list
}

var (
	aside = regexp.MustCompile(` \| .*| {4,}.*`)       // what follows a call
	word  = regexp.MustCompile(`(?:[^\s']+|'[^']*')+`) // of a shell
	env   = regexp.MustCompile(`^(\w+=\S+ )+`)         // before a call
)

func checkExample(t *testing.T, c *cobra.Command, line string) {
	t.Helper()
	call := env.ReplaceAllString(aside.ReplaceAllString(strings.TrimSpace(line), ""), "")
	var words []string
	for _, w := range word.FindAllString(call, -1) {
		words = append(words, strings.ReplaceAll(w, "'", ""))
	}
	root := cli.Pointsman() // flags keep what they were set to
	if len(words) == 0 || words[0] != "pointsman" {
		t.Errorf("%s: %q is no call of pointsman", c.CommandPath(), line)
		return
	}
	found, rest, err := root.Find(words[1:])
	if err != nil || !strings.HasPrefix(found.CommandPath(), c.CommandPath()) {
		t.Errorf("%s: %q is a call of %v, %v", c.CommandPath(), line, found, err)
		return
	}
	if err := found.ParseFlags(rest); err != nil {
		t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
		return
	}
	if err := found.ValidateArgs(found.Flags().Args()); err != nil {
		t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
	}
}

// Every command that comes to an answer writes it as JSON too.
func TestEveryAnswerIsJSONToo(t *testing.T) {
	t.Parallel()
	for _, c := range all(cli.Pointsman()) {
		switch c.Name() {
		case "dev", "bridge", "worker": // stay up
			continue
		case "schema": // is JSON anyway
			continue
		}
		if !c.HasSubCommands() && !c.Hidden && c.Flags().Lookup("json") == nil {
			t.Errorf("%s: has no --json", c.CommandPath())
		}
	}
}

// What talks to NATS takes the same flags everywhere.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, c := range all(cli.Pointsman()) {
		if c.Flags().Lookup("project") == nil {
			continue
		}
		flags := []string{"nats-url", "json"}
		if c.Parent().Name() == "keys" { // which asks the database
			flags = flags[1:]
		}
		for _, name := range flags {
			if c.Flags().Lookup(name) == nil {
				t.Errorf("%s: has no --%s", c.CommandPath(), name)
			}
		}
		if c.Long == "" {
			t.Errorf("%s: has no long help", c.CommandPath())
		}
	}
}
