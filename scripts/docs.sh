#!/usr/bin/env bash
# The book of docs/, in target/docs.
. "$(dirname "$0")/common.sh"

if ! have mdbook; then
    echo 'error: no `mdbook`; install it with `cargo install --locked mdbook`' >&2
    exit 2
fi
mdbook build docs
echo "the book: target/docs/index.html"
