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
prefix=assets
# shellcheck source=hack/cached-build.sh
. "$root/hack/cached-build.sh"

all="etcd kube-apiserver kubectl kube-controller-manager kube-scheduler"
wanted=$all
quiet=no

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

# required prints the version that tools/MODULE/go.mod names, the only place
# where a version is written down.
required() { # MODULE PATH
	awk -v m="$2" '$1 == "require" && $2 == m { print $3; exit } $1 == m && $2 ~ /^v/ { print $2; exit }' "$root/tools/$1/go.mod"
}
kubernetes=$(required kubernetes k8s.io/kubernetes)
etcd=$(required etcd go.etcd.io/etcd/server/v3)
if [ -z "$kubernetes" ] || [ -z "$etcd" ]; then die "tools/kubernetes/go.mod or tools/etcd/go.mod names no version"; fi

# version prints the version a binary says of itself, and nothing for a file
# that is missing, cut short or made for another machine.
version() { # DIR NAME
	[ -x "$1/$2" ] || return 0
	case $2 in
	etcd) "$1/$2" --version 2>/dev/null | awk '/^etcd Version:/ { print "v" $3 }' ;;
	kubectl) "$1/$2" version --client 2>/dev/null | awk '/^Client Version:/ { print $3 }' ;;
	*) "$1/$2" --version 2>/dev/null | awk '{ print $2 }' ;;
	esac || true
}

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	lacking=
	for name in $wanted; do
		[ -n "$(version "$KUBEBUILDER_ASSETS" "$name")" ] || lacking="$lacking $name"
	done
	if [ -z "$lacking" ]; then
		[ $quiet = yes ] || say "using KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS"
		printf '%s\n' "$KUBEBUILDER_ASSETS"
		exit 0
	fi
	say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no usable$lacking; using the cache instead"
fi

# kubernetes_ldflags stamps the release into the binaries: without it a server
# reports v0.0.0-master and clients refuse it.
kubernetes_ldflags() {
	local flags="-s -w" target
	for target in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags="$flags -X $target.gitVersion=$kubernetes"
		flags="$flags -X $target.gitMajor=$(cut -d. -f1 <<<"${kubernetes#v}")"
		flags="$flags -X $target.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
		flags="$flags -X $target.gitTreeState=clean"
	done
	printf '%s\n' "$flags"
}

dir=$(cache_root)/kubernetes/$kubernetes
mkdir -p "$dir"
for name in $wanted; do
	want=$kubernetes
	[ "$name" != etcd ] || want=$etcd
	[ "$(version "$dir" "$name")" != "$want" ] || continue
	# The lock is one per binary, so that whoever wants only some waits for no others.
	lock_build "$dir/$name"
	if [ "$(version "$dir" "$name")" != "$want" ]; then
		case $name in
		etcd) cached_build "$dir/$name" etcd go.etcd.io/etcd/server/v3 "-s -w" ;;
		*) cached_build "$dir/$name" kubernetes "k8s.io/kubernetes/cmd/$name" "$(kubernetes_ldflags)" ;;
		esac
		got=$(version "$dir" "$name")
		[ "$got" = "$want" ] || die "$name: the new binary reports version \"$got\", not $want"
	fi
	unlock_build
done

[ $quiet = yes ] || say "$wanted: ready in $dir"
printf '%s\n' "$dir"
