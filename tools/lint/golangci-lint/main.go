// Command golangci-lint is golangci-lint with the Kubernetes API linter
// (kubeapilinter) linked in as a module plugin.
//
// golangci-lint's own way to add a plugin, "golangci-lint custom", clones the
// linter's repository and builds there, which needs git access to a forge and
// escapes this module's go.sum. Importing the commands and the plugin gives the
// same program from pinned modules. The plugin does nothing unless a
// configuration names it, so one binary serves .golangci.yml and
// .golangci-kal.yml alike.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"

	_ "sigs.k8s.io/kube-api-linter" // Registers the plugin kubeapilinter.
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintf(os.Stderr, "golangci-lint: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo names the linked golangci-lint, not this module, as the version:
// that is what users look up and what golangci-lint salts its cache with.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "module", Date: "(unknown)", GoVersion: "unknown"}

	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}

	info.GoVersion = build.GoVersion

	for _, dep := range build.Deps {
		if dep.Path == "github.com/golangci/golangci-lint/v2" {
			info.Version = strings.TrimPrefix(dep.Version, "v")
			info.Commit = dep.Sum
		}
	}

	return info
}
