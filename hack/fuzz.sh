#!/usr/bin/env bash
# Runs every fuzz target of the module in the current directory for a while each.
#
#   hack/fuzz.sh DURATION [PACKAGES]      e.g. hack/fuzz.sh 30s ./...
#
# A new failing input is kept by the go command under the package's testdata/fuzz
# and replayed by every later "go test".
set -euo pipefail

duration=${1:?usage: hack/fuzz.sh DURATION [PACKAGES]}
shift

go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "${@:-./...}" |
	while read -r package dir; do
		{ grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go || true; } | awk '{ print $2 }' | LC_ALL=C sort -u |
			while read -r target; do
				printf 'fuzz: %s %s for %s\n' "$package" "$target" "$duration"
				go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package" </dev/null
			done
	done
