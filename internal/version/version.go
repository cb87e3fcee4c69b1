// Package version tells which build of Belay this is. It imports the standard library only.
package version

import "runtime/debug"

// version is set at link time by releases.
var version string

// String is the release, else what the Go toolchain recorded of the build, else "devel".
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
