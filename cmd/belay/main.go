// Command belay runs an AgentRun without a cluster, reads ledgers, and plays providers that fail as scripted.
package main

import (
	"os"

	"belay.dev/belay/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
