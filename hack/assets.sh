#!/usr/bin/env bash
# Finds or builds the Kubernetes control plane that the test suites and the demo
# run: etcd, kube-apiserver, kubectl, kube-controller-manager, kube-scheduler.
#
#   hack/assets.sh [--print] [--only NAME[,NAME...]]
#
# The directory that holds them is the only thing written to stdout; progress
# goes to stderr. So this works anywhere:
#
#   export KUBEBUILDER_ASSETS=$(hack/assets.sh)
#
#   --print   say nothing about assets that are already there
#   --only    only these binaries; envtest needs etcd,kube-apiserver,kubectl
#
# Order: $KUBEBUILDER_ASSETS if it is set and holds every wanted binary; else the
# cache, ${BELAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/belay}/kubernetes/VERSION;
# else a build from Go modules into that cache. A cold build takes about ten
# minutes on two cores, once for a version.
#
# setup-envtest is left out on purpose: its archives hold three of the five
# binaries, and building the other two compiles most of what kube-apiserver is
# made of anyway. Whoever has its assets may point KUBEBUILDER_ASSETS at them;
# --only etcd,kube-apiserver,kubectl is then satisfied without a build.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
all="etcd kube-apiserver kubectl kube-controller-manager kube-scheduler"
wanted=$all
quiet=no

say() { printf 'assets: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

while [ $# -gt 0 ]; do
	case $1 in
	--print) quiet=yes ;;
	--only) [ $# -ge 2 ] || die "--only needs a list of names"; wanted=${2//,/ }; shift ;;
	--only=*) wanted=${1#--only=}; wanted=${wanted//,/ } ;;
	-h | --help) sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
	*) die "unknown argument \"$1\"; see hack/assets.sh --help" ;;
	esac
	shift
done
for name in $wanted; do
	case " $all " in
	*" $name "*) ;;
	*) die "unknown asset \"$name\"; known are: $all" ;;
	esac
done

# The go.mod files of the tools say the versions; nothing else does.
required() { # MODULE_DIR MODULE
	awk -v m="$2" '$1 == "require" && $2 == m { print $3; exit } $1 == m && $2 ~ /^v/ { print $2; exit }' "$root/tools/$1/go.mod"
}
kubernetes=$(required kubernetes k8s.io/kubernetes)
etcd=$(required etcd go.etcd.io/etcd/server/v3)
[ -n "$kubernetes" ] && [ -n "$etcd" ] || die "tools/kubernetes/go.mod or tools/etcd/go.mod names no version"

# version prints the version a binary says of itself; it fails for a file that
# is missing, cut short or made for another machine.
version() { # DIR NAME
	[ -x "$1/$2" ] || return 1
	case $2 in
	etcd) "$1/$2" --version 2>/dev/null | awk '/^etcd Version:/ { print "v" $3 }' ;;
	kubectl) "$1/$2" version --client 2>/dev/null | awk '/^Client Version:/ { print $3 }' ;;
	*) "$1/$2" --version 2>/dev/null | awk '{ print $2 }' ;;
	esac
}

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	lacking=
	for name in $wanted; do
		[ -n "$(version "$KUBEBUILDER_ASSETS" "$name" || true)" ] || lacking="$lacking $name"
	done
	if [ -z "$lacking" ]; then
		[ $quiet = yes ] || say "using KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS"
		printf '%s\n' "$KUBEBUILDER_ASSETS"
		exit 0
	fi
	say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no usable$lacking; using the cache instead"
fi

dir=${BELAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/belay}/kubernetes/$kubernetes
mkdir -p "$dir"

temp=
child=
cleanup() {
	if [ -n "$child" ]; then kill "$child" 2>/dev/null || true; fi
	if [ -n "$temp" ]; then rm -rf "$temp"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

elapsed() { printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); }

# build compiles one binary beside its place and renames it there, so that a
# reader sees all of it or nothing.
build() { # NAME
	local module package flags log total start next
	case $1 in
	etcd)
		module=etcd package=go.etcd.io/etcd/server/v3
		flags="-s -w" ;;
	*)
		# Without these a server reports v0.0.0-master and clients refuse it.
		module=kubernetes package=k8s.io/kubernetes/cmd/$1
		flags="-s -w"
		for target in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			flags="$flags -X $target.gitVersion=$kubernetes"
			flags="$flags -X $target.gitMajor=$(cut -d. -f1 <<<"${kubernetes#v}")"
			flags="$flags -X $target.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
			flags="$flags -X $target.gitTreeState=clean"
		done ;;
	esac

	temp=$(mktemp -d "$dir/.build-$1.XXXXXX")
	log=$temp/log
	cd "$root/tools/$module"
	export CGO_ENABLED=0 GOWORK=off
	say "$1: building $package (Go modules are fetched when missing)"
	total=$(go list -deps "$package" 2>"$log" | wc -l) || { cat "$log" >&2; die "$1: cannot resolve $package in tools/$module"; }

	start=$SECONDS next=15
	# -v prints a line for each package that had to be compiled.
	go build -v -trimpath -ldflags "$flags" -o "$temp/$1" "$package" >"$log" 2>&1 &
	child=$!
	while kill -0 "$child" 2>/dev/null; do
		sleep 0.5
		if [ $((SECONDS - start)) -ge $next ]; then
			say "$1: $(elapsed $((SECONDS - start))), $(wc -l <"$log" | tr -d ' ') packages compiled of at most ${total// /}"
			next=$((SECONDS - start + 15))
		fi
	done
	if ! wait "$child"; then
		child=
		tail -n 30 "$log" >&2
		die "$1: go build $package failed in tools/$module; its last lines are above"
	fi
	child=
	mv -f "$temp/$1" "$dir/$1"
	rm -rf "$temp"
	temp=
	say "$1: built in $(elapsed $((SECONDS - start)))"
	cd "$root"
}

# One lock a binary: a caller that wants only some of them waits for no others.
# Where flock does not exist two callers may do the same work twice; the rename
# keeps the result whole.
lock() { # NAME
	exec 9>"$dir/.lock-$1"
	command -v flock >/dev/null || return 0
	local start=$SECONDS
	until flock -w 15 9; do
		say "$1: another build holds the lock, waiting since $(elapsed $((SECONDS - start)))"
	done
}

for name in $wanted; do
	want=$kubernetes
	[ "$name" != etcd ] || want=$etcd
	[ "$(version "$dir" "$name" || true)" != "$want" ] || continue
	lock "$name"
	if [ "$(version "$dir" "$name" || true)" != "$want" ]; then
		build "$name"
		got=$(version "$dir" "$name" || true)
		[ "$got" = "$want" ] || die "$name: the new binary reports version \"$got\", not $want"
	fi
	exec 9>&-
done

[ $quiet = yes ] || say "etcd $etcd and Kubernetes $kubernetes are in $dir"
printf '%s\n' "$dir"
