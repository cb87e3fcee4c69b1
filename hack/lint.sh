#!/usr/bin/env bash
# Runs golangci-lint with .golangci.yml on every module that holds code of this
# project. Arguments go to "golangci-lint run", e.g. hack/lint.sh --fix.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lint=$("$root/hack/tool.sh" golangci-lint)
failed=

"$lint" config verify --config "$root/.golangci.yml"
for module in . test tools/gotest; do
	if [ ! -f "$root/$module/go.mod" ]; then continue; fi
	printf 'lint: %s\n' "$module"
	(cd "$root/$module" && "$lint" run --config "$root/.golangci.yml" "$@" ./...) || failed="$failed $module"
done
if [ -n "$failed" ]; then
	printf 'lint: issues in:%s\n' "$failed" >&2
	exit 1
fi
