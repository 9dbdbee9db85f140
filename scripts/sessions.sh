#!/usr/bin/env bash
# scripts/sessions.sh [NAME…]: runs the commands whose whole output README and the book show, on servers under load and on
# programs of the tests, and puts what they print into the pages. Needs root, what `make tests` builds, and the net for
# redis' source. Read `git diff` then: sentences beside an output may name its numbers.
. "$(dirname "$0")/common.sh"
. scripts/redis.sh

PATH=$(dirname "$(realpath "${TIPTOE_BIN:-target/release/tiptoe}")"):$PATH
wanted=" $* "
sessions=$PWD/target/sessions
rm -rf "$sessions"
mkdir -p "$sessions"

# report COMMAND…: prints only the report of a tiptoe command, without its messages and without the output of the
# command that it starts.
report() {
    local words=() word
    for word; do
        [[ $word == -- ]] && words+=(-o "$work/report")
        words+=("$word")
    done
    "${words[@]}" >"$work/stdout" 2>/dev/null || true
    [[ ! -e $work/report ]] || mv "$work/report" "$work/stdout"
    cat "$work/stdout"
}

# session NAME AS COMMAND…: records the report of COMMAND. Pages show the command as AS, so the process id in the report
# is replaced by that in AS.
session() {
    local pid shown
    [[ $wanted == "  " || $wanted == *" $1 "* ]] || return 0
    pid=$(sed -n 's/.* -p \([0-9]*\).*/\1/p' <<<"${*:3}")
    shown=$(sed -n 's/.* -p \([0-9]*\).*/\1/p' <<<"$2")
    { echo "\$ $2"; report "${@:3}"; } | sed "${shown:+s/\b$pid\b/$shown/g}" >"$sessions/$1"
}

# Writes the report of a watch in a redis-server with debug information to stdout. Debian's has none, so it is built.
# Clients send a command each millisecond, because each is an access.
debug_session() {
    local built=target/bench-source/source/src/redis-server server
    [[ -x $built ]] || { scripts/bench-source.sh redis && make -C "$(dirname "$built")" -j2 MALLOC=libc redis-server; } >&2
    "$built" --port 0 --unixsocket "$work/debug.sock" --save '' --dir "$work" >/dev/null &
    server=$!
    until [[ -S $work/debug.sock ]]; do sleep 0.05; done
    (sleep 0.6; redis-cli -s "$work/debug.sock" -r 500 -i 0.001 ping >/dev/null) &
    tiptoe watch server.stat_numcommands -p "$server" --budget off --duration 2s
    kill "$server"
}
session debug 'tiptoe watch server.stat_numcommands -p $(pidof redis-server) --budget off --duration 2s' debug_session

session doctor "tiptoe doctor" tiptoe doctor
bug_session() {
    (cd "$work" && tiptoe bug 2>&1)
}
session bug "tiptoe bug" bug_session

# Starts a redis-server as in `make demo`.
start_redis --io-threads 2
redis-benchmark -s "$socket" -t set,get -n 100000000 -r 100000 -c 50 --threads 2 -q >/dev/null 2>&1 &
load=$!
pids+=("$load")
sleep 0.5
functions=(dictFind call processCommand lookupKey)
session probe "tiptoe probe ${functions[*]} -p 9410 --duration 3" \
    tiptoe probe "${functions[@]}" -p "$server" --duration 3
session record 'tiptoe probe --record dictFind call -p $(pidof redis-server)' \
    timeout -s INT 1 tiptoe probe --record dictFind call -p "$server"
kill "$load"

# Starts a memcached whose clients send many requests at once.
cat >"$work/client.py" <<'PYTHON'
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
batch = b''.join(b'set k%d 0 0 5\r\nvalue\r\nget k%d\r\n' % (i % 50, i % 50) for i in range(200))
answer = sum(len('STORED\r\nVALUE k%d 0 5\r\nvalue\r\nEND\r\n' % (i % 50)) for i in range(200))
while True:
    s.sendall(batch)
    left = answer
    while left: left -= len(s.recv(left))
PYTHON
memcached -u root -t 4 -s "$work/memcached.sock" &
memcached=$!
pids+=("$memcached")
until [[ -S $work/memcached.sock ]]; do sleep 0.05; done
for _ in 1 2 3 4 5 6 7 8; do
    python3 "$work/client.py" "$work/memcached.sock" 2>/dev/null &
    pids+=("$!")
done
sleep 2
session lock "tiptoe lock -p 1278 --duration 3 --top 2" tiptoe lock -p "$memcached" --duration 3 --top 2
kill "${pids[@]:3}"

# Starts an nginx with one worker, and a client with ten requests a second.
mkdir "$work/nginx"
cat >"$work/nginx.conf" <<NGINX
daemon off; worker_processes 1; pid $work/nginx.pid; error_log $work/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path $work/nginx/1; proxy_temp_path $work/nginx/2; fastcgi_temp_path $work/nginx/3;
    uwsgi_temp_path $work/nginx/4; scgi_temp_path $work/nginx/5;
    server { listen unix:$work/nginx.sock; return 200; }
}
NGINX
nginx -c "$work/nginx.conf" &
pids+=("$!")
until [[ -S $work/nginx.sock && -s $work/nginx.pid ]]; do sleep 0.05; done
while curl -s --unix-socket "$work/nginx.sock" http://nginx/; do sleep 0.1; done &
pids+=("$!")
sleep 0.5
worker=$(cat "/proc/$(cat "$work/nginx.pid")"/task/*/children)
session nginx "tiptoe watch ngx_current_msec --changed -p 2417 --duration 3" \
    tiptoe watch ngx_current_msec --changed -p "${worker% }" --duration 3
kill "${pids[@]: -2}"

# Puts redis and its clients into one cgroup, and the idle memcached into another.
counts=task-clock,cs,page-faults,syscalls:sys_enter_read
cgroup_session() {
    local cgroups
    cgroups=$(findmnt -nt cgroup2 -o TARGET | head -1)
    mkdir -p "$cgroups/db" "$cgroups/web"
    echo "$server" >"$cgroups/db/cgroup.procs"
    echo "$memcached" >"$cgroups/web/cgroup.procs"
    tiptoe stat -e "$counts" --for-each-cgroup db,web -o "$work/report" -- sh -c \
        'echo $$ >"$0/db/cgroup.procs"; exec redis-benchmark -q -s "$1" -t get -n 100000' "$cgroups" "$socket"
    for pid in "$server" "$memcached"; do echo "$pid" >"$cgroups/cgroup.procs"; done
    rmdir "$cgroups/db" "$cgroups/web"
}
session cgroups "tiptoe stat -e $counts --for-each-cgroup db,web -- redis-benchmark -q …" cgroup_session

cd target/test-targets
session watch "tiptoe watch stats.state --changed -- ./watched corrupt 1" \
    tiptoe watch stats.state --changed -- ./watched corrupt 1
events=cs,page-faults,syscalls:sys_enter_getppid
session scopes "tiptoe stat --by scope -e $events -- ./scoped faults 2 10" \
    tiptoe stat --by scope -e $events -- ./scoped faults 2 10
session csv "tiptoe stat --by scope --csv -e page-faults -- ./scoped faults 2 10" \
    tiptoe stat --by scope --csv -e page-faults -- ./scoped faults 2 10
session turns "tiptoe lock -- turns 1000000 4 200" tiptoe lock -- ./turns 1000000 4 200
./mmap_contended 3 4 60000 >/dev/null &
pids+=("$!")
session kernel "tiptoe lock --kernel -p 31779 --duration 3 --top 4" tiptoe lock --kernel -p "$!" --duration 3 --top 4
kill "${pids[-1]}"
session stat "tiptoe stat -- sleep 0.1" tiptoe stat -- sleep 0.1
cd - >/dev/null

machine="$(nproc) CPUs of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), Linux $(uname -r), $(date +%F)"
echo "$machine" >"$sessions/machine"
cargo run -q -p xtask -- sessions "$sessions"
