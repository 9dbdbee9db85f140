#!/usr/bin/env bash
# The crates that programs link must build with any set of features, and from their packages.
. "$(dirname "$0")/common.sh"

for features in "" std parking_lot order validate; do
    cargo clippy -p tiptoe-lock --no-default-features --features "$features" -- -D warnings
done
cargo clippy -p tiptoe-lock --all-features --all-targets -- -D warnings
package=(cargo package --allow-dirty -p tiptoe-event -p tiptoe-port -p tiptoe-sync -p tiptoe-lock)
"${package[@]}" --offline || "${package[@]}"
cargo test -p tiptoe-lock --all-features
