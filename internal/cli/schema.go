package cli

import (
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/config"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file",
		Long: `schema prints the JSON Schema of pointsman.yaml, with which editors complete and check it as it is written: fields, types, bounds and
defaults. It is made of what reads the file. What depends on several fields at once, and what stands in expressions, is for "routes check" and
"flows check". An editor with the YAML language server takes the schema from the first line of a file:
# yaml-language-server: $schema=pointsman.schema.json`,
		Example: "  pointsman schema", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := config.JSONSchema()
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(doc)
			return err
		},
	}
}
