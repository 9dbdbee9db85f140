#!/usr/bin/env bash
# scripts/model.sh all|changed: loom models of the shipped lock-free code. Crates opt in with a dependency on loom under
# cfg(tiptoe_loom). Passed crates are recorded in tests/models.txt, as a hash of the crate and of all of ours that it uses.
# `changed` skips crates whose hash is listed, because a model's outcome follows from the sources alone.
. "$(dirname "$0")/common.sh"

passed_list=tests/models.txt
touch "$passed_list"

# folders FOLDER: prints a crate's folder and those of the crates of this workspace that it depends on.
folders() {
    local dependency
    echo "$1"
    for dependency in $(sed -n '/^\[dev-dependencies\]/,/^\[/!s/^tiptoe-\([a-z]*\)[.= ].*/\1/p' "$1/Cargo.toml"); do
        folders "$(echo crates/*/"$dependency")"
    done
}

# hash FOLDER: prints the hash of all sources of the crate's models.
hash() {
    local all
    mapfile -t all < <(folders "$1" | sort -u)
    find "${all[@]}" -type f \( -name '*.rs' -o -name Cargo.toml \) -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16
}

mapfile -t modelled < <(grep -l 'tiptoe_loom' crates/*/*/Cargo.toml | xargs -n 1 dirname)
run=()
for folder in "${modelled[@]}"; do
    if [[ ${1:-all} == changed ]] && grep -q "^$folder $(hash "$folder")\$" "$passed_list"; then
        continue
    fi
    run+=("$folder")
done
for folder in "${run[@]}"; do
    RUSTFLAGS="--cfg tiptoe_loom" LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2} \
        cargo test --quiet --manifest-path "$folder/Cargo.toml" --release --target-dir target/loom --lib --tests
done
for folder in "${modelled[@]}"; do echo "$folder $(hash "$folder")"; done >target/models.txt
echo "models: ${#run[@]} of ${#modelled[@]} crates ran: ${run[*]:-none changed since their models passed}"
if ! cmp -s target/models.txt "$passed_list"; then
    cp target/models.txt "$passed_list"
    echo "models: commit $passed_list, and the next gate leaves them out"
fi
