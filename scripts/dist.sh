#!/usr/bin/env bash
# Builds the release in target/dist: one static binary; a Debian package, a tarball and an image of it with man pages,
# completions and licences; and SHA256SUMS. Files have the commit's time, so that each build gives the same bytes.
. "$(dirname "$0")/common.sh"

target=x86_64-unknown-linux-gnu
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Without git, as in a source tarball, the time is that of Cargo.toml.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
# The largest allowed size in bytes. A larger binary has linked something that the command does not need.
most_bytes=$((15 << 20))
dist=target/dist
rm -rf "$dist"
mkdir -p "$dist"

# Packs whole folders, sorted and without the builder's name, so that each build gives the same bytes.
archive() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$@"
}

binary() {
    # glibc is linked statically, so that the command needs no library of the machine and no version can be wrong.
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --quiet --locked --release --target "$target" -p tiptoe
    install -m 755 "target/$target/release/tiptoe" "$dist/tiptoe"
    # Not grep -q: it ends at the first match, and pipefail would then report that readelf could not write the rest.
    if readelf -d "$dist/tiptoe" | grep NEEDED >/dev/null; then
        echo "error: the command needs a shared library" >&2
        return 1
    fi
    if readelf -SW "$dist/tiptoe" | grep ' \.debug_\| \.symtab' >/dev/null; then
        echo "error: the command has debug information or symbols: [profile.release] must leave them out" >&2
        return 1
    fi
    local size
    size=$(stat -c %s "$dist/tiptoe")
    if [[ $size -gt $most_bytes ]]; then
        echo "error: the command has $size bytes, and may have $most_bytes" >&2
        return 1
    fi
}

# Puts the files below a folder, at the places at which they are installed.
tree() {
    local share=$1/usr/share page
    install -D -m 755 "$dist/tiptoe" "$1/usr/bin/tiptoe"
    "$dist/tiptoe" generate "$dist/generated"
    for page in "$dist"/generated/man/*.1; do
        install -d "$share/man/man1"
        gzip -9nc "$page" >"$share/man/man1/$(basename "$page").gz"
    done
    install -D -m 644 "$dist/generated/bash/tiptoe.bash" "$share/bash-completion/completions/tiptoe"
    install -D -m 644 "$dist/generated/zsh/_tiptoe" "$share/zsh/vendor-completions/_tiptoe"
    install -D -m 644 "$dist/generated/fish/tiptoe.fish" "$share/fish/vendor_completions.d/tiptoe.fish"
    install -D -m 644 packaging/copyright "$share/doc/tiptoe/copyright"
    rm -r "$dist/generated"
    chmod -R u=rwX,go=rX "$1"
}

package() {
    local root=$dist/root
    tree "$root"
    sed "s/VERSION/$version/" packaging/changelog >"$dist/changelog"
    gzip -9nc "$dist/changelog" >"$root/usr/share/doc/tiptoe/changelog.gz"
    install -D -m 644 packaging/lintian-overrides "$root/usr/share/lintian/overrides/tiptoe"
    install -d "$root/DEBIAN"
    sed "s/VERSION/$version/; s/SIZE/$(du -sk "$root/usr" | cut -f1)/" packaging/control >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb --build --root-owner-group "$root" "$dist/tiptoe_${version}_amd64.deb" >/dev/null
    rm -r "$root" "$dist/changelog"
}

tarball() {
    local name=tiptoe-$version-x86_64-linux
    tree "$dist/$name"
    cp LICENSE-APACHE LICENSE-MIT docs/src/install.md "$dist/$name"
    archive -C "$dist" -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"
    rm -r "$dist/$name"
}

# Makes an OCI image of one layer with one file, for `podman load` and `docker load`.
image() {
    local folder=$dist/image layer config manifest
    mkdir -p "$folder/blobs/sha256" "$dist/layer"
    install -D -m 755 "$dist/tiptoe" "$dist/layer/tiptoe"
    archive -C "$dist/layer" -cf "$folder/layer.tar" tiptoe
    layer=$(blob "$folder/layer.tar")
    local created
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
    cat >"$folder/config.json" <<JSON
{"architecture":"amd64","os":"linux","created":"$created","config":{"Entrypoint":["/tiptoe"]},"rootfs":{"type":"layers","diff_ids":["sha256:${layer% *}"]}}
JSON
    config=$(blob "$folder/config.json")
    cat >"$folder/manifest.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:${config% *}","size":${config#* }},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:${layer% *}","size":${layer#* }}]}
JSON
    manifest=$(blob "$folder/manifest.json")
    echo '{"imageLayoutVersion":"1.0.0"}' >"$folder/oci-layout"
    cat >"$folder/index.json" <<JSON
{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:${manifest% *}","size":${manifest#* },"annotations":{"io.containerd.image.name":"localhost/tiptoe:$version","org.opencontainers.image.ref.name":"$version"}}]}
JSON
    archive -C "$folder" -cf "$dist/tiptoe-$version-image.tar" oci-layout index.json blobs
    rm -r "$folder" "$dist/layer"
}

# blob FILE: moves it to its path in the image, and prints its digest and size.
blob() {
    local digest size
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$(dirname "$1")/blobs/sha256/$digest"
    echo "$digest $size"
}

binary
package
tarball
image
(cd "$dist" && sha256sum -- * >SHA256SUMS)
(cd "$dist" && ls -l)
