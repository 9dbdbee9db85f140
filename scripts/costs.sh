#!/usr/bin/env bash
# scripts/costs.sh NAME [BENCH…]: runs all benches, or those named, such as "breakpoint queue", in seven passes, and joins the
# passes to docs/costs/NAME.json, from which `cargo run -p xtask -- costs` fills the tables of docs/src/costs.md. The machine
# should do nothing else for 20 minutes.
. "$(dirname "$0")/common.sh"

name=${1:?the name of this machine}
shift
dev=${TIPTOE_DEV_BIN:-target/release/tiptoe-dev}
[ -x "$dev" ] || cargo build --release --workspace
benches=(
    "uprobe --rounds 2 --ms 4" "lock --rounds 3 --ms 4" "scope --rounds 3 --ms 10" "resolve --rounds 3 --ms 10"
    "attach --rounds 1" "coverage" "watch --rounds 2 --ms 4" "cgroup --rounds 1 --ms 4" "schedule" "build --rounds 3"
    "breakpoint stress" "breakpoint thread -b 4 -p 64 -t 64" "breakpoint queue" "interrupt --rounds 3"
)
[ $# = 0 ] || benches=("$@")
date=$(date -u +%F)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
cpu=$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passes=()
for pass in {1..7}; do
    passes+=("$folder/$pass")
    {
        printf '{"date": "%s", "cpu": "%s", "cpus": %d, "kernel": "%s", "commit": "%s", "benches": {' \
            "$date" "$cpu" "$(nproc)" "$(uname -r)" "$commit"
        comma=
        for bench in "${benches[@]}"; do
            echo "pass $pass: bench $bench" >&2
            # A bench that cannot run on this machine is left out, so that the page has no table for it. shellcheck
            # disable=SC2086 # options are words
            table=$(timeout -s INT -k 10 "${LIMIT:-600}" "$dev" bench $bench --json) || continue
            printf '%s\n"%s": {"command": "bench %s", "date": "%s", "commit": "%s", "table": %s}' \
                "$comma" "${bench%% -*}" "$bench" "$date" "$commit" "$table"
            comma=,
        done
        printf '}}\n'
    } >"$folder/$pass"
done
mkdir -p docs/costs
cargo run -q -p xtask --locked -- costs join "docs/costs/$name.json" "${passes[@]}"
