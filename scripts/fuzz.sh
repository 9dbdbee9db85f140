#!/usr/bin/env bash
# scripts/fuzz.sh SECONDS SEED: each target of fuzz/ for that long. With a seed other than 0 each run tries the
# same inputs in the same order: what a change broke is found, and nothing by chance.
. "$(dirname "$0")/common.sh"

seconds=${1:-10} seed=${2:-0}
[[ -d fuzz ]] || { echo "no fuzz targets"; exit 0; }
if ! nightly fuzz; then
    skip fuzz "install it with \`cargo install --locked cargo-fuzz\` and a nightly toolchain"
    exit 0
fi
for target in $(cargo +nightly fuzz list); do
    echo "fuzz $target: ${seconds} s"
    log=target/fuzz-$target.log
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
    cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -seed="$seed" -rss_limit_mb=4096 >"$log" 2>&1 ||
        { tail -n 60 "$log"; grep -A 3 -E 'panicked at|^==.*ERROR|std::fmt::Debug|^Base64' "$log"; exit 1; }
    grep -E '^Done|^#.*DONE' "$log" | tail -n 1
    passed "fuzz:$target"
done
