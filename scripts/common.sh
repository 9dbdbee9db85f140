# Shared by the scripts in this folder; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Files of passed steps and of skips, which the last lines of `make test` print.
RESULTS=target/test-results
SKIPS=${TIPTOE_SKIPS:-$PWD/target/test-skips}
mkdir -p target

# skip WHAT WHY: records that a step cannot run here.
skip() {
    echo "skipped: step $1 ($2)"
    echo "step $1 ($2)" >>"$SKIPS"
}

# passed WHAT: records that a step passed.
passed() {
    echo "passed $1" >>"$RESULTS"
}

# have COMMAND: succeeds if the command is installed.
have() {
    command -v "$1" >/dev/null 2>&1
}

# nightly SUBCOMMAND: succeeds if the nightly toolchain has this cargo subcommand.
nightly() {
    cargo +nightly "$1" --version >/dev/null 2>&1
}

# clang_major: prints the major version of the clang that built the BPF objects, as its package and commands are named.
clang_major() {
    sed 's/^clang version \([0-9]*\)\..*/\1/' crates/host/kernel/bpf/built-with
}
