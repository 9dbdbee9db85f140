#!/usr/bin/env bash
# Runs each test that a gate reported as flaky (tests/flaky.txt, and target/test-flaky of this checkout) 20 times,
# without a second try.
. "$(dirname "$0")/common.sh"

mapfile -t names < <(cat tests/flaky.txt target/test-flaky 2>/dev/null | cut -d' ' -f1 | grep -v '^#' | sort -u)
[[ ${#names[@]} -eq 0 ]] && exit 0
exec cargo run --quiet -p xtask -- tests --nightly --repeat 20 "${names[@]}"
