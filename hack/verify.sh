#!/usr/bin/env bash
# Fails if a generated file or a go.mod is not what its sources make of it, and
# names the files and the command that fixes them.
#
# It regenerates in place and compares the tree before and after, so uncommitted
# work is judged like committed work and unrelated changes do not matter. Stale
# files are left regenerated.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=no

# snapshot lists every file that git tracks or would track, with its checksum.
snapshot() {
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do
			if [ -f "$file" ]; then printf '%s\0' "$file"; fi
		done | LC_ALL=C sort -z -u | xargs -0 cksum
}

# stale runs a make target and reports the files that it changed.
stale() { # TARGET
	snapshot >"$work/before"
	${MAKE:-make} --no-print-directory "$1" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
	snapshot >"$work/after"
	if cmp -s "$work/before" "$work/after"; then
		printf 'verify: %s: up to date\n' "$1"
		return
	fi
	failed=yes
	printf 'verify: these files are stale; "make %s" makes them anew (it just did):\n' "$1" >&2
	# Field 3 of cksum and what follows it is the name.
	LC_ALL=C comm -3 <(LC_ALL=C sort "$work/before") <(LC_ALL=C sort "$work/after") |
		sed 's/^\t//' | cut -d' ' -f3- | LC_ALL=C sort -u | sed 's/^/  /' >&2
}

stale generate
stale manifests

while IFS= read -r mod; do
	dir=$(dirname "$mod")
	if diff=$(cd "$dir" && go mod tidy -diff 2>"$work/log"); then
		printf 'verify: %s: tidy\n' "$mod"
	else
		failed=yes
		printf 'verify: %s is not tidy; "cd %s && go mod tidy" fixes it:\n' "$mod" "$dir" >&2
		if [ -n "$diff" ]; then printf "%s\n" "$diff" | head -n 40 >&2; fi
		grep -v '^go: downloading' "$work/log" >&2 || true
	fi
done < <(git ls-files --cached --others --exclude-standard -- 'go.mod' '*/go.mod' | LC_ALL=C sort -u)

# The image is built from the folders that the Dockerfile copies, and nothing here
# builds it: a package that a command imports from elsewhere must be copied too.
while IFS= read -r dir; do
	dir=${dir#"$root"/}
	if ! awk -v dir="$dir/" '$1 == "COPY" && $2 ~ /\/$/ && index(dir, $2) == 1 { found = 1 } END { exit !found }' Dockerfile; then
		failed=yes
		printf 'verify: the commands import %s, which the Dockerfile does not copy; add it there and to .dockerignore\n' "$dir" >&2
	fi
done < <(go list -deps -f '{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}' ./cmd/...)

[ $failed = no ]
