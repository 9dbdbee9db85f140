#!/usr/bin/env bash
# scripts/bpf.sh [--write]: builds the BPF programs of host/kernel with clang, and compares the results with the
# committed objects beside the sources; with --write the objects are replaced. tiptoe's own build uses the committed
# objects, so that it needs no clang. `built-with` names the clang to use, because another one makes other bytes;
# CLANG=clang-N scripts/bpf.sh --write changes it.
. "$(dirname "$0")/common.sh"

built_with=$(cat crates/host/kernel/bpf/built-with)
clang=${CLANG:-clang-$(clang_major)}
strip=llvm-strip${clang#clang}
if ! have "$clang" || ! have "$strip"; then
    echo "error: no \`$clang\` and \`$strip\`: $built_with made the BPF objects" >&2
    echo "hint: scripts/setup.sh test" >&2
    exit 2
fi
version=$("$clang" --version | grep -o 'clang version [0-9.]*')
if [[ ${1:-} != --write && $version != "$built_with" ]]; then
    echo "error: $built_with made the BPF objects, \`$clang\` is $version" >&2
    echo "hint: CLANG=$clang scripts/bpf.sh --write makes them anew" >&2
    exit 2
fi
cd crates/host/kernel/bpf
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
flags=(-target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror "-ffile-prefix-map=$PWD=.")

if [[ ${1:-} == --write ]]; then
    echo "$version" >built-with
fi

for source in *.bpf.c; do
    object=${source%.c}.o
    "$clang" "${flags[@]}" -c "$source" -o "$made/$object"
    "$strip" -g "$made/$object"
    if [[ ${1:-} == --write ]]; then
        cp "$made/$object" "$object"
    elif ! cmp -s "$made/$object" "$object"; then
        echo "error: $object is not what $source makes" >&2
        echo "hint: scripts/bpf.sh --write" >&2
        exit 1
    fi
done
cd - >/dev/null
