#!/usr/bin/env bash
# loom models of the shipped lock-free code. Crates opt in with a dependency on loom under cfg(tiptoe_loom).
. "$(dirname "$0")/common.sh"

mapfile -t modelled < <(grep -l 'tiptoe_loom' crates/*/*/Cargo.toml || true)
for manifest in "${modelled[@]}"; do
    RUSTFLAGS="--cfg tiptoe_loom" LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2} \
        cargo test --manifest-path "$manifest" --release --target-dir target/loom --lib --tests
done
passed "models(${#modelled[@]})"
