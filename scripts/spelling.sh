#!/usr/bin/env bash
# Checks the spelling of all texts: documents, help, messages, comments and names. scripts/spelling.txt has the words that are
# right all the same, in lower case.
. "$(dirname "$0")/common.sh"

if ! have codespell; then
    skip spelling "codespell is not installed"
    exit 0
fi
git ls-files -z -- ':!*.lock' ':!*.svg' ':!*.o' ':!fuzz/corpus' ':!scripts/spelling.txt' |
    xargs -0 codespell --ignore-words scripts/spelling.txt
