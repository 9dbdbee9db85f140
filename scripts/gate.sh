#!/usr/bin/env bash
# scripts/gate.sh [COMMIT]: checks whether a commit is done. Runs .ci/run in a clean clone, as the least friendly runner
# would: SIGHUP ignored, no terminal, no standard input, a low priority. Kills the processes that it leaves.
# If it passes, the commit and the time are added to target/gate-passed. Evidence of failed tests is in target/gate-failed.
. "$(dirname "$0")/common.sh"

commit=$(git rev-parse --verify "${1:-HEAD}^{commit}")
folder=$(mktemp -d /tmp/tiptoe-gate-XXXXXX)
# All users must be able to read the clone, because tests run programs in it as other users.
chmod 755 "$folder"

# Prints the processes whose program or working folder is in the clone.
left() {
    local process
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/exe" 2>/dev/null) $(readlink "$process/cwd" 2>/dev/null)" in
        *"$folder"*) echo "${process#/proc/}" ;;
        esac
    done
}

cleanup() {
    local pids
    mapfile -t pids < <(left)
    if [[ ${#pids[@]} -gt 0 ]]; then
        echo "gate: left running, killed: ${pids[*]}"
        kill -KILL "${pids[@]}" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

git clone --quiet --no-hardlinks . "$folder/clone"
git -C "$folder/clone" checkout --quiet --detach "$commit"
begin=$(date +%s)
status=0
env -u CARGO_TARGET_DIR -u TIPTOE_BIN CI=true bash -c "cd '$folder/clone' && trap '' HUP && exec setsid --wait nice -n 10 bash .ci/run" \
    </dev/null 2>&1 | tee target/gate.log || status=$?
seconds=$(($(date +%s) - begin))
rm -rf target/gate-failed
cp -r "$folder/clone/target/failed" target/gate-failed 2>/dev/null || true
if [[ $status -ne 0 ]]; then
    echo "gate: $commit failed with status $status after $seconds s: target/gate.log, target/gate-failed"
    exit 1
fi
echo "$commit $(date --iso-8601=seconds) $seconds s" >>target/gate-passed
echo "gate: $commit passed in $seconds s"
