#!/usr/bin/env bash
# Checks tiptoe's dependencies by deny.toml: licences, sources, versions, and known vulnerabilities if their database can
# be downloaded. `--locked`, because the versions in Cargo.lock must be the checked ones.
. "$(dirname "$0")/common.sh"

if ! cargo deny --version >/dev/null 2>&1; then
    skip cargo-deny "install it with \`cargo install --locked cargo-deny\`"
    exit 0
fi
for manifest in Cargo.toml fuzz/Cargo.toml; do
    deny=(cargo deny --manifest-path "$manifest" --locked)
    "${deny[@]}" --offline check bans licenses sources 2>/dev/null || "${deny[@]}" check bans licenses sources
done

if cargo deny --locked fetch db >/dev/null 2>&1; then
    for manifest in Cargo.toml fuzz/Cargo.toml; do
        cargo deny --manifest-path "$manifest" --locked --offline check advisories
    done
else
    skip advisories "the database cannot be fetched: https://github.com/RustSec/advisory-db"
fi
