#!/usr/bin/env bash
# Starts a redis-server with I/O threads under redis-benchmark, and traces it for three seconds. The report ends with
# the cost.
. "$(dirname "$0")/common.sh"
. scripts/redis.sh

tiptoe=${TIPTOE_BIN:-target/release/tiptoe}
start_redis --io-threads 2
redis-benchmark -s "$socket" -t set,get -n 100000000 -r 100000 -c 50 --threads 2 -q >/dev/null 2>&1 &
pids+=("$!")
sleep 0.5

set -- "$tiptoe" probe dictFind call processCommand lookupKey -p "$server" --duration 3
echo "\$ tiptoe ${*:2}"
"$@"
