# Shared by the scripts in this folder; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Results of the steps that count or skip, for the last line of `make test`.
RESULTS=target/test-results
mkdir -p target

# skip WHAT WHY: a step that cannot run here says so and is not a failure.
skip() {
    echo "skipped: $1 ($2)"
    echo "skipped $1" >>"$RESULTS"
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
