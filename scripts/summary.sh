#!/usr/bin/env bash
# Prints the last lines of `make test`: what was skipped, and how many steps passed. With TIPTOE_MUST_RUN=1 a skip that
# scripts/may-skip.txt does not list is a failure.
. "$(dirname "$0")/common.sh"

# may_skip LINE: succeeds if LINE begins with a line of the list, without that line's reason.
may_skip() {
    local listed
    while IFS= read -r listed; do
        [[ -n $listed && $listed != '#'* && $1 == "${listed%% # *}"* ]] && return
    done <scripts/may-skip.txt
    return 1
}

touch "$SKIPS" target/test-flaky
sed 's/^/flaky: /' target/test-flaky
mapfile -t skips < <(sort -u "$SKIPS")
unlisted=0
for line in "${skips[@]}"; do
    may_skip "$line" && why=listed || { why="not listed"; unlisted=$((unlisted + 1)); }
    echo "skipped ($why): $line"
done
passed=$(grep -cs '^passed ' "$RESULTS" || true)
if [[ ${TIPTOE_MUST_RUN:-} == 1 && $unlisted -gt 0 ]]; then
    echo "make test result: failed. $passed steps passed; $unlisted of ${#skips[@]} skips are not in scripts/may-skip.txt"
    exit 1
fi
echo "make test result: ok. $passed steps passed; 0 failed; ${#skips[@]} skipped"
