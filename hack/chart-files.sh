#!/usr/bin/env bash
# Copies what the Helm chart shares with config/ into charts/belay/files: the CRDs, the roles, the admission policies and
# the alerts. A chart may only read files of its own; the templates give the objects the release's names and labels.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
files=charts/belay/files

for pair in crd/bases:crd rbac:rbac admission:admission prometheus:prometheus; do
	from=config/${pair%%:*} to=$files/${pair#*:}
	mkdir -p "$to"
	for file in "$from"/*.yaml; do
		name=$(basename "$file")
		case $name in
		# kustomize's own, and what the chart writes itself because it depends on values.
		kustomization.yaml | service_account.yaml | service_monitor.yaml) continue ;;
		esac
		if ! cmp -s "$file" "$to/$name"; then cp "$file" "$to/$name"; fi
	done
	for file in "$to"/*.yaml; do
		if [ ! -f "$from/$(basename "$file")" ]; then rm -v "$file"; fi
	done
done
