#!/usr/bin/env bash
# The crates that programs link must build with any set of features, and from their packages. The command must be
# installed by the line of README.
. "$(dirname "$0")/common.sh"

for features in "" std parking_lot order validate; do
    cargo clippy -p tiptoe-lock --no-default-features --features "$features" -- -D warnings
done
cargo clippy -p tiptoe-lock --all-features --all-targets -- -D warnings
for features in "" std; do
    cargo clippy -p tiptoe-scope --no-default-features --features "$features" --all-targets -- -D warnings
done
package=(cargo package --allow-dirty -p tiptoe-event -p tiptoe-port -p tiptoe-sync -p tiptoe-lock -p tiptoe-scope)
"${package[@]}" --offline || "${package[@]}"
cargo test -p tiptoe-lock -p tiptoe-scope --all-features

# The debug build is installed, because a release build takes minutes, and `make dist` makes one.
installed=$(mktemp -d)
trap 'rm -rf "$installed"' EXIT
read -ra install < <(sed -n 's/^\(cargo install [^#]*\).*/\1/p' README.md)
install+=(--debug --locked --root "$installed")
"${install[@]}" --offline || "${install[@]}"
version=$("$installed/bin/tiptoe" --version)
[[ $version == "tiptoe $(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)"* ]] || {
    echo "error: the installed command is of another version: $version" >&2
    exit 1
}
"$installed/bin/tiptoe" probe libc.so.6:malloc --json -o "$installed/report" -- ls >/dev/null
grep -q '"count":[1-9]' "$installed/report" || {
    echo "error: the installed command has counted nothing" >&2
    exit 1
}
