#!/usr/bin/env bash
# scripts/costs.sh NAME [BENCH…]: runs the benches on this machine, which should do nothing else for 15 minutes, and writes
# docs/costs/NAME.json, from which `cargo run -p xtask -- costs` fills the tables of docs/src/costs.md. If benches are named,
# such as "breakpoint queue", only their results are replaced.
. "$(dirname "$0")/common.sh"

name=${1:?the name of this machine}
shift
dev=${TIPTOE_DEV_BIN:-target/release/tiptoe-dev}
[ -x "$dev" ] || cargo build --release --workspace
benches=(
    "uprobe --rounds 5 --ms 4" "lock --rounds 5 --ms 4" "scope --rounds 7 --ms 10" "resolve --rounds 5 --ms 10"
    "attach --rounds 3" "coverage" "watch --rounds 3 --ms 4" "cgroup --rounds 3 --ms 4" "schedule" "build --rounds 10"
    "breakpoint stress" "breakpoint thread -b 4 -p 64 -t 64" "breakpoint queue" "interrupt --rounds 5"
)
mkdir -p docs/costs
file=docs/costs/$name.json
kept=/dev/null
if [ $# != 0 ]; then
    benches=("$@")
    [ ! -e "$file" ] || kept=$file
fi
date=$(date -u +%F)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
cpu=$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)
{
    printf '{"date": "%s", "cpu": "%s", "cpus": %d, "kernel": "%s", "commit": "%s",\n"benches": {' \
        "$date" "$cpu" "$(nproc)" "$(uname -r)" "$commit"
    comma=
    for bench in "${benches[@]}"; do
        echo "bench $bench" >&2
        # A bench that cannot run on this machine is left out, so that the page has no table for it. shellcheck
        # disable=SC2086 # options are words
        table=$(timeout -s INT -k 10 "${LIMIT:-600}" "$dev" bench $bench --json) || continue
        options=${bench%% -*}
        printf '%s\n"%s": {"command": "bench %s", "date": "%s", "commit": "%s", "table": %s}' \
            "$comma" "$options" "$bench" "$date" "$commit" "$table"
        comma=,
    done
    printf '}}\n'
} >"$file.new"
python3 - "$kept" "$file.new" >"$file.whole" <<'PYTHON'
import json, sys
old, new = (json.loads(open(path).read() or '{}') for path in sys.argv[1:])
whole = {**new, **old, "benches": {**old.get("benches", {}), **new["benches"]}}
benches = ',\n'.join(f'{json.dumps(key)}: {json.dumps(bench)}' for key, bench in whole.pop("benches").items())
print(json.dumps(whole)[:-1] + ',\n"benches": {\n' + benches + '}}')
PYTHON
mv "$file.whole" "$file"
rm "$file.new"
