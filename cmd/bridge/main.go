// Command bridge: see bridge --help.
package main

import (
	"os"

	"github.com/pointsman/pointsman/internal/cli"
)

func main() { os.Exit(cli.Main(cli.Bridge())) }
