# shellcheck shell=bash
# Sourced by assets.sh and tool.sh: builds programs from the modules below
# tools/ into a cache outside the source tree, once, with progress on stderr.
#
# Callers set $root (the repository) and $prefix (the word before every line).
: "${root:?}" "${prefix:?}"

say() { printf '%s: %s\n' "$prefix" "$*" >&2; }
die() { say "$*"; exit 1; }

# cache_root is where everything that is built once lives.
cache_root() { printf '%s\n' "${BELAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/belay}"; }

elapsed() { printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); }

build_temp=
build_pid=
build_cleanup() {
	if [ -n "$build_pid" ]; then kill "$build_pid" 2>/dev/null || true; fi
	if [ -n "$build_temp" ]; then rm -rf "$build_temp"; fi
}
trap build_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# cached_build compiles PACKAGE of the module tools/MODULE to OUTPUT. The file
# is written beside its place and renamed, so a reader sees all of it or
# nothing, however the build ends.
cached_build() { # OUTPUT MODULE PACKAGE LDFLAGS
	local output=$1 module=$2 package=$3 ldflags=$4
	local name dir log total start next
	name=$(basename "$output")
	dir=$(dirname "$output")
	build_temp=$(mktemp -d "$dir/.build-$name.XXXXXX")
	log=$build_temp/log
	export CGO_ENABLED=0 GOWORK=off

	say "$name: building $package (Go modules are fetched when missing)"
	start=$SECONDS next=15
	if ! total=$(go -C "$root/tools/$module" list -deps "$package" 2>"$log" | wc -l); then
		tail -n 30 "$log" >&2
		die "$name: cannot resolve $package in tools/$module; go list says why above"
	fi
	# -v prints a line for each package that had to be compiled.
	go -C "$root/tools/$module" build -v -trimpath -ldflags "$ldflags" -o "$build_temp/$name" "$package" >"$log" 2>&1 &
	build_pid=$!
	while kill -0 "$build_pid" 2>/dev/null; do
		sleep 0.5
		if [ $((SECONDS - start)) -ge $next ]; then
			say "$name: $(elapsed $((SECONDS - start))), $(wc -l <"$log" | tr -d ' ') packages compiled of at most ${total// /}"
			next=$((SECONDS - start + 15))
		fi
	done
	if ! wait "$build_pid"; then
		build_pid=
		tail -n 30 "$log" >&2
		die "$name: go build $package failed in tools/$module; its last lines are above"
	fi
	build_pid=
	mv -f "$build_temp/$name" "$output"
	rm -rf "$build_temp"
	build_temp=
	say "$name: built in $(elapsed $((SECONDS - start)))"
}

# lock_build lets one process at a time build OUTPUT, until unlock_build or the
# end of the script. Where flock does not exist two callers may do the same work
# twice; the rename keeps the result whole.
lock_build() { # OUTPUT
	local start=$SECONDS
	exec 9>"$(dirname "$1")/.lock-$(basename "$1")"
	command -v flock >/dev/null || return 0
	until flock -w 15 9; do
		say "$(basename "$1"): another process builds it, waiting since $(elapsed $((SECONDS - start)))"
	done
}
unlock_build() { exec 9>&-; }
