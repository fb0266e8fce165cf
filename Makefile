# Atoll's chores. `make demo` and `make test` are all a newcomer needs; both install what is missing.
.DEFAULT_GOAL := help
SHELL := /bin/bash
ATOLL := target/debug/atoll

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: setup
setup: ## Install the system packages that are missing (Debian)
	@scripts/setup

.PHONY: build
build: setup ## Build the atoll program
	cargo build --package atoll-cli

.PHONY: demo
demo: build ## Two tenants with the same addresses on three nodes, and the proof that they never meet
	@scripts/demo $(ATOLL)

.PHONY: clean-lab
clean-lab: ## Take the demo's lab down and leave nothing behind
	@[ -x $(ATOLL) ] || { echo "nothing to do: $(ATOLL) is not built"; exit 0; }; $(ATOLL) lab down --name demo

.PHONY: test
test: setup check ## Run everything: lints, freshness of generated files, all tests (as root)

.PHONY: check
check: lint unit ## Lints and tests; among them, that generated files are fresh and every promise has its test

.PHONY: lint
lint: ## Format and clippy, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings

.PHONY: fresh
fresh: ## Only: fail where a generated file is stale or a promise has no test
	cargo xtask crds --check
	cargo xtask chart --check
	cargo xtask promises

.PHONY: unit
unit: ## Every test of the workspace; those that touch the kernel need root and say so
	cargo test --workspace --all-targets --no-fail-fast

# Tests are chosen out of the whole workspace: chosen by package, cargo would build what they depend
# on once more, with the features of that package alone.
.PHONY: test-real
test-real: setup ## The API, `atoll apply` and the controller against a real kube-apiserver, the plugin driven by the real cnitool (built the first time), a suite that is stopped
	real/with-api cargo test --workspace --test contract
	real/with-api cargo test --workspace --test manifests any_cluster
	real/with-api cargo test --workspace --test cluster
	real/with-api cargo test --workspace --test policies -- --ignored
	cargo test --workspace --test cni -- --ignored
	scripts/setup-real
	cargo build --workspace --bin realnodes
	ATOLL_KUBERNETES=$$(real/build) cargo test --workspace --test stop -- --ignored

.PHONY: image
image: setup ## Write the container images to target/images, as archives that need no registry
	cargo xtask image

.PHONY: e2e
e2e: ## Atoll on real Kubernetes: three clusters of three nodes on this machine, or the cluster of $$E2E_KUBECONFIG
	@scripts/e2e

.PHONY: e2e-smoke
e2e-smoke: ## The part of it that CI runs: installed, two tenants, names, isolation, removed
	@scripts/e2e --smoke

.PHONY: test-chart
test-chart: ## The chart, rendered by the real helm (built the first time), beside the manifests
	scripts/test-chart

.PHONY: generate
generate: ## Write the generated files anew
	cargo xtask crds
	cargo xtask chart

.PHONY: deny
deny: ## Check licences, sources and duplicates of dependencies (needs cargo-deny)
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check licenses bans sources

# A run says how long all of it took, from here on.
BEGUN := $(shell date +%s)
# All in one go, so that nothing is built twice; Kubernetes and CoreDNS beside it, the first time.
MEASURED := $(addprefix --package atoll-,bench cli pause realnodes xtask dns)
.PHONY: bench-build
bench-build: setup
	@scripts/setup-bench
	@scripts/setup-real
	@log=$$(mktemp); nice -n 19 bash -c 'real/build && real/coredns/build' >$$log 2>&1 & others=$$!; \
	cargo build --profile measured $(MEASURED) --bins --example serve || { kill $$others; exit 1; }; \
	wait $$others || { cat $$log; exit 1; }; rm -f $$log
	target/measured/atoll-xtask image --from target/measured

.PHONY: bench
bench: bench-build ## Measure Atoll beside its peers (as root), write docs/benchmarks.md
	target/measured/bench run --begun $(BEGUN) --document docs/benchmarks.md

.PHONY: bench-quick
bench-quick: bench-build ## The same with fewer and shorter rounds, without the parts that take minutes each
	target/measured/bench run --quick --document docs/benchmarks.md

.PHONY: guard
guard: setup ## Count the instructions of a packet's way in QEMU; fail where it costs more than before
	cargo test --workspace --test run --no-run
	target/debug/bench run --quick --only guard

.PHONY: test-kernels
test-kernels: setup ## The tables of decisions and a few tests on 6.1, 6.12 and a current kernel, emulated, in minutes; ALL=1 for every test
	@scripts/test-kernels $(if $(ALL),--all)

.PHONY: test-kernels-tables
test-kernels-tables: setup ## Only the tables, on the oldest kernel
	@scripts/test-kernels --tables 6.1
