#!/usr/bin/env bash
# What the tiptoe command is made of, as CycloneDX: each package with its version, licence, checksum and what it uses.
. "$(dirname "$0")/common.sh"

cargo run --quiet --locked --package xtask -- sbom >target/tiptoe.cdx.json
echo "target/tiptoe.cdx.json: $(grep -c '"purl"' target/tiptoe.cdx.json) packages"
