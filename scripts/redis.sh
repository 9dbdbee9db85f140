# Starts a redis-server for a script. Sourced after common.sh, not run. The processes in `pids` are ended when the
# script ends.
work=$(mktemp -d)
socket=$work/redis.sock
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# start_redis OPTION…: starts the server, waits until its socket exists, and sets `server` to its process id.
start_redis() {
    redis-server --port 0 --unixsocket "$socket" --save '' --dir "$work" "$@" >"$work/log" 2>&1 &
    server=$!
    pids+=("$server")
    for _ in $(seq 100); do [[ -S $socket ]] && return; sleep 0.05; done
}
