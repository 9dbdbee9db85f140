#!/usr/bin/env bash
# Makes the pictures of README and the book in docs/src/pictures, from real runs on this machine. One shows a session on
# a terminal of 80 columns. The other shows how many commands a second a redis-server handles while each tracer traces
# 54 of its functions.
. "$(dirname "$0")/common.sh"
. scripts/redis.sh

tiptoe=${TIPTOE_BIN:-target/release/tiptoe}
pictures=docs/src/pictures
rounds=${ROUNDS:-5}
mkdir -p "$pictures"

start_redis
load() { redis-benchmark -s "$socket" -t get -r 100000 -c 50 "$@"; }

# The session.
load -n 100000000 -q >/dev/null 2>&1 &
pids+=("$!")
command=("$tiptoe" probe --latency dictFind lookupKey processCommand call -p "$server" --duration 3)
{
    printf '\e[1m$ tiptoe %s\e[0m\n' "${command[*]:1}"
    script -qec "stty cols 80 rows 40; ${command[*]@Q} --color always 2>/dev/null" /dev/null </dev/null | tr -d '\r'
} | sed "s/$server/9410/g" | cargo run -q -p xtask -- picture terminal >"$pictures/session.svg"
kill "${pids[-1]}"
unset 'pids[-1]'

# The picture of bars. All cases alternate, and the median of the rounds is shown.
functions=$(nm -D "$(command -v redis-server)" | sed -n 's/.* T \(dict.*\)/\1/p')
number=$(wc -l <<<"$functions")
rate() { load -n "$1" --csv 2>/dev/null | tail -1 | cut -d, -f2 | tr -d '"'; }
# traced CASE REQUESTS READY COMMAND…: runs COMMAND, which traces the server, waits until READY succeeds, and records
# the rate.
traced() {
    local name=$1 requests=$2 ready=$3
    shift 3
    "$@" >"$work/said" 2>&1 </dev/null &
    tracer=$!
    pids+=("$tracer")
    until eval "$ready"; do
        kill -0 "$tracer" || { cat "$work/said"; exit 1; }
        sleep 0.1
    done
    rate "$requests" >>"$work/rate.$name"
    # SIGTERM, because a background command of a script ignores SIGINT.
    kill -TERM "$tracer"
    wait "$tracer" || true
    unset 'pids[-1]'
}
perf probe -q -d 'probe_redis:dict*' 2>/dev/null || true
for function in $functions; do perf probe -q -x "$(command -v redis-server)" -a "$function" >/dev/null; done
for _ in $(seq "$rounds"); do
    rate 100000 >>"$work/rate.nothing"
    traced tiptoe 100000 'grep -q counting: "$work/said"' "$tiptoe" probe 'redis-server:dict*' -p "$server"
    traced perf 20000 'ls -l /proc/$tracer/fd | grep -q perf_event' perf stat -e 'probe_redis:dict*' -p "$server"
    traced bpftrace 20000 'grep -q Attaching "$work/said"' \
        bpftrace -e "uprobe:$(command -v redis-server):dict* { @[func] = count(); }"
done
perf probe -q -d 'probe_redis:dict*'
median() { sort -n "$work/rate.$1" | sed -n "$(((rounds + 1) / 2))p"; }
{
    echo "redis-server: GET commands a second while $number of its functions are counted"
    for name in nothing tiptoe perf bpftrace; do echo "$(median $name) $name"; done
    echo "Medians of $rounds alternating rounds; $(nproc) CPUs of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), which the clients share;"
    echo "Linux $(uname -r), $("$tiptoe" --version), $(perf --version), $(bpftrace --version), $(date +%F); scripts/pictures.sh"
} | tee /dev/stderr | cargo run -q -p xtask -- picture bars >"$pictures/redis.svg"
