#!/usr/bin/env bash
# scripts/miri.sh CRATE…: runs the tests of these crates under miri.
. "$(dirname "$0")/common.sh"

if ! nightly miri; then
    skip miri "install it with \`rustup toolchain install nightly --component miri --component rust-src\`"
    exit 0
fi
# Property tests run few cases, because miri is a few hundred times slower.
export PROPTEST_CASES=${PROPTEST_CASES:-4} MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation}
for crate in "$@"; do
    cargo +nightly miri test -p "$crate" --lib --tests --target-dir target/miri
done
