#!/usr/bin/env bash
# scripts/bpf.sh [--write]: builds the BPF programs of host/kernel with clang, and compares the objects that
# lie beside their sources with what comes out; with --write they are replaced. tiptoe's own build takes the
# objects as they are and needs no clang. Another clang makes other bytes: then only the build is checked.
. "$(dirname "$0")/common.sh"

if ! have clang || ! have llvm-strip; then
    skip bpf "install clang and llvm"
    exit 0
fi
cd crates/host/kernel/bpf
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
flags=(-target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror "-ffile-prefix-map=$PWD=.")

version=$(clang --version | grep -o 'clang version [0-9.]*')
if [[ ${1:-} == --write ]]; then
    echo "$version" >built-with
fi

for source in *.bpf.c; do
    object=${source%.c}.o
    clang "${flags[@]}" -c "$source" -o "$made/$object"
    llvm-strip -g "$made/$object"
    if [[ ${1:-} == --write ]]; then
        cp "$made/$object" "$object"
    elif [[ $version != "$(cat built-with)" ]]; then
        skip "bpf, comparing $object" "$(cat built-with) made it, this is $version"
    elif ! cmp -s "$made/$object" "$object"; then
        echo "error: $object is not what $source makes" >&2
        echo "hint: scripts/bpf.sh --write" >&2
        exit 1
    fi
done
cd - >/dev/null
passed bpf
