# The daily commands. Each installs the packages that it needs (as root) or prints the line that does.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

# The scale of the long tests.
export TIPTOE_TEST_SCALE ?= 0.004
nightly: TIPTOE_TEST_SCALE = 0.01
FUZZ_SECONDS ?= 20
# The seed of the fuzz targets. 0 uses other inputs each time.
FUZZ_SEED ?= 0
# The pure crates that miri runs. Crates without unsafe code that take minutes run only in stress.
MIRI_CRATES ?= tiptoe-event tiptoe-sync tiptoe-port tiptoe-wire tiptoe-session tiptoe-stack tiptoe-futex tiptoe-label
step := scripts/step.sh

.NOTPARALLEL:
.PHONY: build dist sbom docs demo pictures test nightly stress check tests models miri asan fuzz features clean

build: ## the tiptoe command, at target/release/tiptoe
	cargo build --locked --release

dist: ## what is released, in target/dist: a static binary, a Debian package, a tarball, an image
	@scripts/dist.sh

sbom: ## what the tiptoe command is made of, at target/tiptoe.cdx.json (CycloneDX)
	@scripts/sbom.sh

docs: ## the book of docs/, at target/docs/index.html
	@scripts/docs.sh

demo: ## a redis-server under load, traced, with what that cost
	@scripts/setup.sh demo
	@$(MAKE) build
	@scripts/demo.sh

pictures: ## README's pictures in docs/src/pictures, from real runs; needs root
	@scripts/setup.sh pictures
	@$(MAKE) build
	@scripts/pictures.sh

test: ## the gate: what every change must pass, in eight minutes on two cores
	@scripts/setup.sh test
	@$(MAKE) check tests
	@$(step) "models of what changed" scripts/model.sh changed
	@scripts/summary.sh

nightly: ## everything: what is long, needs other releases of Debian, measures time, or repeats
	@scripts/setup.sh nightly
	@$(MAKE) check features
	@$(step) "what is released" scripts/dist.sh
	@TIPTOE_TEST_LIMIT=1200 $(step) "tests, nightly ones too" cargo run --quiet -p xtask -- tests --nightly
	@$(step) book scripts/docs.sh may-skip
	@$(step) "flaky tests, 20 times" scripts/flaky.sh
	@$(step) models scripts/model.sh all
	@$(MAKE) miri asan fuzz
	@scripts/summary.sh

stress: ## nightly at full scale, with ten minutes of each fuzz target
	@$(MAKE) nightly TIPTOE_TEST_SCALE=1 FUZZ_SECONDS=600 MIRI_CRATES="$(MIRI_CRATES) tiptoe-breakpoint tiptoe-patch tiptoe-schedule"

check: ## formatting, spelling, lints, dependencies, the BPF objects
	@$(step) format cargo fmt --all -- --check
	@$(step) spelling scripts/spelling.sh
	@$(step) lints cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
	@$(step) "format and lints of the fuzz targets" scripts/fuzz.sh check
	@$(step) dependencies scripts/deny.sh
	@$(step) "BPF objects" scripts/bpf.sh

tests: ## every test that is not a nightly one; FILTER="part of a name…" runs some
	@$(step) tests cargo run --quiet -p xtask -- tests $(FILTER)
	@$(step) "examples in the documentation" cargo test --quiet --workspace --doc

models: ## loom: the lock-free parts, every interleaving within two preemptions; keeps what passed in tests/models.txt
	@scripts/model.sh all

miri: ## undefined behaviour in the pure crates
	@$(step) miri scripts/miri.sh $(MIRI_CRATES)

asan: ## the collector under the address sanitizer
	@$(step) "address sanitizer" scripts/asan.sh

fuzz: ## each fuzz target for FUZZ_SECONDS
	@$(step) fuzz scripts/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_SEED)

features: ## what programs link: any set of features, its packages, its examples; the bill of materials
	@$(step) "features and packages" scripts/package.sh
	@$(step) "bill of materials" scripts/sbom.sh

clean:
	cargo clean
