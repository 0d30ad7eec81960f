package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/ident"
)

// content reads an argument that may be long: the text itself, @FILE, or - for the standard input.
func content(c *cobra.Command, arg string) ([]byte, error) {
	file, isFile := strings.CutPrefix(arg, "@")
	switch {
	case arg == "-":
		body, err := io.ReadAll(c.InOrStdin())
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return body, nil
	case isFile:
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, usage(c, err)
		}
		return body, nil
	}
	return []byte(arg), nil
}

// documentArg reads the JSON argument at an index, if there is one.
func documentArg(c *cobra.Command, args []string, i int, name string) ([]byte, error) {
	if len(args) <= i {
		return nil, nil
	}
	body, err := content(c, args[i])
	if err != nil {
		return nil, err
	}
	if err := ident.JSON(name, body, ident.MaxJSON); err != nil {
		return nil, usage(c, fmt.Errorf("%w: want JSON, @FILE or -", err))
	}
	return body, nil
}

// headers reads "Name: value" flags.
func headers(c *cobra.Command, flags []string) (map[string]api.HeaderValue, error) {
	all := map[string]api.HeaderValue{}
	for _, flag := range flags {
		name, value, ok := strings.Cut(flag, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, usage(c, fmt.Errorf("--header %q: want \"Name: value\"", flag))
		}
		all[name] = append(all[name], strings.TrimSpace(value))
	}
	return all, nil
}

// oneOf makes two flags that exclude each other a usage error.
func oneOf(c *cobra.Command, a, b string) error {
	if c.Flags().Changed(a) && c.Flags().Changed(b) {
		return usage(c, fmt.Errorf("--%s and --%s: want one of them", a, b))
	}
	return nil
}
