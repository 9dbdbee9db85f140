# The commands of a working day. Each one installs what it needs (as root) or prints the line that does.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

# The tests' knobs, the same in every recipe: 1% of the long tests, 5 s of each fuzz target, the same inputs each time.
export TIPTOE_TEST_SCALE ?= 0.01
FUZZ_SECONDS ?= 5
FUZZ_SEED ?= 1
# The pure crates that miri runs. Those without unsafe code of their own that take it minutes run only in stress.
MIRI_CRATES ?= tiptoe-event tiptoe-sync tiptoe-port tiptoe-wire tiptoe-session tiptoe-stack tiptoe-futex tiptoe-label

.NOTPARALLEL:
.PHONY: build sbom demo test stress check unit model e2e miri asan fuzz setup-demo setup-test setup-stress clean

build: ## the tiptoe command, at target/release/tiptoe
	cargo build --locked --release

sbom: ## what the tiptoe command is made of, at target/tiptoe.cdx.json (CycloneDX)
	scripts/sbom.sh

demo: setup-demo build ## a redis-server under load, traced, with what that cost
	scripts/demo.sh

test: setup-test check unit model e2e miri fuzz ## every test, the long ones at 1%
	@scripts/summary.sh

stress: setup-stress asan ## every test, whole, under the address sanitizer too, and ten minutes of each fuzz target
	$(MAKE) test TIPTOE_TEST_SCALE=1 FUZZ_SECONDS=600 FUZZ_SEED=0 MIRI_CRATES="$(MIRI_CRATES) tiptoe-breakpoint tiptoe-patch tiptoe-schedule"

check: ## formatting, lints, the rules between crates, dependencies, the BPF objects, what is packaged
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo build --locked
	cargo test -p xtask
	scripts/deny.sh
	scripts/sbom.sh
	scripts/bpf.sh
	scripts/package.sh

unit: ## the crates' own tests
	cargo test --workspace --exclude xtask --exclude tiptoe-tests
	cargo test -p tiptoe-lock --all-features

model: ## loom: the lock-free parts, every interleaving within two preemptions
	scripts/model.sh

e2e: ## real programs, driven through the command
	cargo build
	cargo test -p tiptoe-tests

miri: ## undefined behaviour in the pure crates
	scripts/miri.sh $(MIRI_CRATES)

asan: ## the collector under the address sanitizer
	scripts/asan.sh

fuzz: ## each fuzz target for FUZZ_SECONDS
	scripts/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_SEED)

setup-demo:
	@scripts/setup.sh demo

setup-test:
	@scripts/setup.sh test

setup-stress:
	@scripts/setup.sh stress

clean:
	cargo clean
