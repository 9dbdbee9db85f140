#!/usr/bin/env bash
# A redis-server with I/O threads under redis-benchmark, traced for three seconds; then the report and its cost.
. "$(dirname "$0")/common.sh"

tiptoe=${TIPTOE_BIN:-target/release/tiptoe}
work=$(mktemp -d)
socket=$work/redis.sock
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

redis-server --port 0 --unixsocket "$socket" --save '' --io-threads 2 --dir "$work" >"$work/log" 2>&1 &
server=$!
pids+=("$server")
for _ in $(seq 100); do [[ -S $socket ]] && break; sleep 0.05; done
redis-benchmark -s "$socket" -t set,get -n 100000000 -r 100000 -c 50 --threads 2 -q >/dev/null 2>&1 &
pids+=("$!")
sleep 0.5

set -- "$tiptoe" probe dictFind call processCommand lookupKey -p "$server" --duration 3
echo "\$ tiptoe ${*:2}"
"$@"
