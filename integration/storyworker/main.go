// Command storyworker is a worker, as cmd/worker is, that has the machines of package stories.
package main

import (
	"os"

	"github.com/pointsman/pointsman/integration/stories"
	"github.com/pointsman/pointsman/internal/cli"
)

func main() { os.Exit(cli.Main(cli.WorkerWith(stories.Machines()...))) }
