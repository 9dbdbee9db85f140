# Shared by the scripts in this folder; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Steps that passed, and what steps and tests could not do here, for the last lines of `make test`.
RESULTS=target/test-results
SKIPS=${TIPTOE_SKIPS:-$PWD/target/test-skips}
mkdir -p target

# skip WHAT WHY: a step that cannot run here says so.
skip() {
    echo "skipped: step $1 ($2)"
    echo "step $1 ($2)" >>"$SKIPS"
}

# passed WHAT: one step is done.
passed() {
    echo "passed $1" >>"$RESULTS"
}

# have COMMAND: is it there?
have() {
    command -v "$1" >/dev/null 2>&1
}

# nightly SUBCOMMAND: does the nightly toolchain have this cargo subcommand?
nightly() {
    cargo +nightly "$1" --version >/dev/null 2>&1
}

# clang_major: the number of the clang that made the BPF objects, as in the names of its package and commands.
clang_major() {
    sed 's/^clang version \([0-9]*\)\..*/\1/' crates/host/kernel/bpf/built-with
}
