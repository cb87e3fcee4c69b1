#!/usr/bin/env bash
# Builds a development tool from the modules below tools/ and prints its path.
#
#   hack/tool.sh NAME      NAME: benchstat controller-gen golangci-lint gotest helm
#
# The path is the only thing written to stdout, so "$(hack/tool.sh benchstat)"
# runs the tool. A tool is built once for a state of its module and a version of
# Go, into ${BELAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/belay}/tools; a change
# of the module's go.mod, go.sum or sources builds it again.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=tools
# shellcheck source=hack/cached-build.sh
. "$root/hack/cached-build.sh"

name=${1:-}
case $name in
benchstat) module=bench package=golang.org/x/perf/cmd/benchstat ;;
controller-gen) module=generate package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
golangci-lint) module=lint package=./golangci-lint ;;
gotest) module=gotest package=. ;;
helm) module=helm package=helm.sh/helm/v4/cmd/helm ;;
*) die "unknown tool \"$name\"; see hack/tool.sh" ;;
esac

# The sources of a module are few: own main packages and go.mod, go.sum.
state=$(cd "$root/tools/$module" && {
	go env GOVERSION GOOS GOARCH
	find . -type f ! -name '*_test.go' ! -path '*/testdata/*' | LC_ALL=C sort | xargs cat
} | cksum | tr -d ' ')
path=$(cache_root)/tools/$name-$state/$name
if [ ! -x "$path" ]; then
	mkdir -p "$(dirname "$path")"
	lock_build "$path"
	[ -x "$path" ] || cached_build "$path" "$module" "$package" "-s -w"
	unlock_build
fi
printf '%s\n' "$path"
