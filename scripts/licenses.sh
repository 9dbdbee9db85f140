#!/usr/bin/env bash
# Every dependency carries a licence that deny.toml allows.
. "$(dirname "$0")/common.sh"

if ! cargo deny --version >/dev/null 2>&1; then
    skip cargo-deny "install it with \`cargo install --locked cargo-deny\`"
    exit 0
fi
cargo deny --offline check licenses 2>/dev/null || cargo deny check licenses
passed licenses
