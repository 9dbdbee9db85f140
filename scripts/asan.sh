#!/usr/bin/env bash
# Runs the collector's unit tests with AddressSanitizer, because the collector reads memory that the traced program
# writes.
. "$(dirname "$0")/common.sh"

if ! cargo +nightly --version >/dev/null 2>&1; then
    skip asan "install nightly with \`rustup toolchain install nightly\`"
    exit 0
fi
RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0 \
    cargo +nightly test -p tiptoe-collector -p tiptoe-attach -p tiptoe-price --lib \
    --target x86_64-unknown-linux-gnu --target-dir target/asan
