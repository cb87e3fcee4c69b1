# "make" or "make help" lists the targets. What is built once (tools, Kubernetes)
# lands in ${BELAY_CACHE:-~/.cache/belay}, everything else in bin/.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Set RACE= where there is no C compiler: the race detector needs one.
RACE ?= -race
# What the commands say of themselves; unset, what the Go toolchain recorded.
VERSION ?=
# Extra arguments of go test, e.g. TESTFLAGS='-run TestBreaker -v'.
TESTFLAGS ?=
# Benchmarks: runs of each, the pattern, and the time of each run.
COUNT ?= 6
BENCH ?= .
BENCHTIME ?= 1s
# How long test-long fuzzes each target.
FUZZTIME ?= 30s

empty :=
space := $(empty) $(empty)
# Not api/...: the generated apply configurations below may not compile until
# they are generated again.
API_PATHS := $(subst $(space),;,$(addprefix ./,$(wildcard api/v*)))
BOILERPLATE := hack/boilerplate.go.txt

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET [VARIABLE=value]" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static commands: bin/manager, bin/runner, bin/toolbox, bin/belay.
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath $(if $(VERSION),-ldflags "-X belay.dev/belay/internal/version.version=$(VERSION)") -o bin/ ./cmd/...

.PHONY: demo
demo: assets build ## Run the operator with a node of its own and scripted faults, with no cluster and no root.
	@KUBEBUILDER_ASSETS="$$(hack/assets.sh --print)"; export KUBEBUILDER_ASSETS; \
	cd test && go run ./demo

.PHONY: assets
assets: ## Find or build etcd and the Kubernetes control plane for tests and demo (once, minutes).
	@hack/assets.sh >/dev/null

.PHONY: clean
clean: ## Remove bin/ and dist/; the cache stays.
	rm -rf bin dist

##@ Tests

.PHONY: test
test: test-unit test-integration ## Run all tests but the long ones.

.PHONY: test-unit
test-unit: ## Run the tests of the root module; suites with an API server are among them.
	@KUBEBUILDER_ASSETS="$$(hack/assets.sh --print --only etcd,kube-apiserver,kubectl)"; export KUBEBUILDER_ASSETS; \
	gotest="$$(hack/tool.sh gotest)"; \
	go -C tools/gotest test -timeout 2m ./...; \
	set -x; "$$gotest" -skips test/SKIPS -- $(RACE) -shuffle=on -timeout 15m $(TESTFLAGS) ./...

.PHONY: test-integration
test-integration: assets build ## Run the test module: whole runs on a control plane with a process-backed node.
	@KUBEBUILDER_ASSETS="$$(hack/assets.sh --print)"; export KUBEBUILDER_ASSETS; \
	HELM="$$(hack/tool.sh helm)"; export HELM; \
	gotest="$$(hack/tool.sh gotest)"; \
	cd test; set -x; "$$gotest" -skips SKIPS -- $(RACE) -shuffle=on -timeout 30m $(TESTFLAGS) ./...

.PHONY: test-long
test-long: assets build ## Run the tests with the build tag "long", then fuzz every target for FUZZTIME.
	@KUBEBUILDER_ASSETS="$$(hack/assets.sh --print)"; export KUBEBUILDER_ASSETS; \
	HELM="$$(hack/tool.sh helm)"; export HELM; \
	gotest="$$(hack/tool.sh gotest)"; \
	"$$gotest" -skips test/SKIPS -- -tags long -shuffle=on -timeout 60m $(TESTFLAGS) ./...; \
	(cd test && "$$gotest" -skips SKIPS -- -tags long -shuffle=on -timeout 60m $(TESTFLAGS) ./...); \
	hack/fuzz.sh $(FUZZTIME) ./...; \
	(cd test && ../hack/fuzz.sh $(FUZZTIME) ./...)

.PHONY: bench
bench: ## Run the benchmarks into bin/bench.txt, in benchstat's format; the last run is kept as bin/bench.old.txt.
	@mkdir -p bin; if [ -f bin/bench.txt ]; then mv bin/bench.txt bin/bench.old.txt; fi; \
	KUBEBUILDER_ASSETS="$$(hack/assets.sh --print)"; export KUBEBUILDER_ASSETS; \
	for module in . test; do (cd $$module; \
	  packages="$$({ grep -rl --include='*_test.go' '^func Benchmark' . | grep -vE '^\./(test|tools)/' || true; } | xargs -r -n1 dirname | sort -u)"; \
	  [ -z "$$packages" ] || go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m $$packages); \
	done | tee bin/bench.txt

.PHONY: bench-compare
bench-compare: ## Compare the last two runs of bench.
	@benchstat="$$(hack/tool.sh benchstat)"; "$$benchstat" bin/bench.old.txt bin/bench.txt

##@ Code

.PHONY: generate
generate: ## Generate deep copies and apply configurations of the API types.
	@controller_gen="$$(hack/tool.sh controller-gen)"; mark="$$(mktemp)"; \
	"$$controller_gen" object:headerFile=$(BOILERPLATE) applyconfiguration:headerFile=$(BOILERPLATE) "paths=$(API_PATHS)"; \
	$(call drop-stale,api,*/applyconfiguration/*.go)

.PHONY: manifests
manifests: ## Generate the CRDs and the manager's role, and copy what the Helm chart shares with config/.
	@controller_gen="$$(hack/tool.sh controller-gen)"; mark="$$(mktemp)"; \
	"$$controller_gen" crd "paths=$(API_PATHS)" output:crd:dir=config/crd/bases; \
	if [ -d internal/controller ]; then \
	  "$$controller_gen" rbac:roleName=manager-role paths=./internal/controller/... output:rbac:dir=config/rbac; \
	fi; \
	$(call drop-stale,config/crd/bases,*.yaml); \
	hack/chart-files.sh

# A generated file that the generator did not write this time has lost its source.
define drop-stale
find $(1) -path '$(2)' ! -newer "$$mark" -print -delete; rm -f "$$mark"
endef

.PHONY: fmt
fmt: ## Format the Go code.
	@lint="$$(hack/tool.sh golangci-lint)"; config="$$PWD/.golangci.yml"; \
	for module in . test tools/gotest; do (cd $$module && "$$lint" fmt --config "$$config"); done

.PHONY: lint
lint: ## Lint every module, the direction of imports among the rules.
	@hack/lint.sh

.PHONY: lint-api
lint-api: ## Lint the API types against the Kubernetes API conventions.
	@lint="$$(hack/tool.sh golangci-lint)"; \
	"$$lint" config verify --config .golangci-kal.yml; \
	"$$lint" run --config .golangci-kal.yml ./api/...

.PHONY: verify
verify: ## Fail if a generated file or a go.mod is stale, and say which command fixes it.
	@hack/verify.sh
