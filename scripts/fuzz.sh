#!/usr/bin/env bash
# scripts/fuzz.sh SECONDS SEED: runs each target of fuzz/ for SECONDS, one on each CPU. With a seed other than 0 each run
# tries the same inputs in the same order, so that a new failure is due to a change.
# scripts/fuzz.sh check: their format and lints, with the workspace's toolchain and without libFuzzer.
. "$(dirname "$0")/common.sh"

if [[ ${1:-} == check ]]; then
    cargo fmt --manifest-path fuzz/Cargo.toml -- --check
    # The build script of libfuzzer-sys copies this file in place of compiling libFuzzer. Nothing is linked with it here.
    CUSTOM_LIBFUZZER_PATH=$PWD/fuzz/Cargo.toml exec cargo clippy --quiet --manifest-path fuzz/Cargo.toml --locked \
        --target-dir target -- -D warnings
fi

seconds=${1:-10} seed=${2:-0}
if ! nightly fuzz; then
    skip fuzz "install it with \`cargo install --locked cargo-fuzz\` and a nightly toolchain"
    exit 0
fi
cargo +nightly fuzz build

# fuzz TARGET: prints one line, or the end of the log if the target fails.
fuzz() {
    local log=target/fuzz-$1.log
    mkdir -p "fuzz/corpus/$1" "fuzz/seeds/$1" "fuzz/artifacts/$1"
    fuzz/target/x86_64-unknown-linux-gnu/release/"$1" "fuzz/corpus/$1" "fuzz/seeds/$1" \
        -artifact_prefix="fuzz/artifacts/$1/" -max_total_time="$seconds" -seed="$seed" -rss_limit_mb=4096 -timeout=60 \
        >"$log" 2>&1 ||
        { tail -n 60 "$log"; grep -A 3 -E 'panicked at|^==.*ERROR|^Base64' "$log"; return 1; }
    echo "fuzz $1, $seconds s: $(grep -E '^Done|^#.*DONE' "$log" | tail -n 1)"
}
export -f fuzz
export seconds seed
cargo +nightly fuzz list | xargs -P "$(nproc)" -I{} bash -euc 'fuzz {}'
