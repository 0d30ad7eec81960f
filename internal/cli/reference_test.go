package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/cli"
)

// docs/cli.md is what the commands say of themselves. -update writes it.
func TestReference(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# The command line

This page is made of the help of the commands: ` + "`go test ./internal/cli -run TestReference -update`" + ` writes it.

`)
	for _, c := range all(cli.Pointsman()) {
		if !c.Hidden {
			describe(&b, c)
		}
	}
	file := filepath.Join("..", "..", "docs", "cli.md")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Error("docs/cli.md is not what the commands say: go test ./internal/cli -run TestReference -update writes it")
	}
}

func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "## %s\n\n", c.CommandPath())
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(b, "```\n%s\n\n%s\n", c.UseLine(), strings.TrimSpace(long))
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", c.Example)
	}
	if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "\nFlags:\n%s", flags)
	}
	b.WriteString("```\n\n")
}
