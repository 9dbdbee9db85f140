#!/usr/bin/env bash
# Prints the tiptoe command's dependencies as CycloneDX: each package with its version, licence, checksum and dependencies.
. "$(dirname "$0")/common.sh"

cargo run --quiet --locked --package xtask -- sbom >target/tiptoe.cdx.json
echo "target/tiptoe.cdx.json: $(grep -c '"purl"' target/tiptoe.cdx.json) packages"
