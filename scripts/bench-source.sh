#!/usr/bin/env bash
# scripts/bench-source.sh [PACKAGE]: unpacks the source of a Debian package (lua5.4) below target/bench-source for
# `tiptoe-dev bench build`, and prints the line that runs it. Needs the net; installs nothing.
. "$(dirname "$0")/common.sh"

package=${1:-lua5.4}
folder=$PWD/target/bench-source
lists=$folder/lists
mkdir -p "$lists/partial"
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "deb-src http://deb.debian.org/debian $release main" >"$folder/sources.list"
apt=(-o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$lists")
apt-get "${apt[@]}" -qq update
(cd "$folder" && apt-get "${apt[@]}" -qq --download-only source "$package")
archive=$(ls "$folder"/"${package}"_*.orig.tar.* | head -1)
rm -rf "$folder/source" && mkdir "$folder/source"
tar -xf "$archive" -C "$folder/source" --strip-components=1
echo "TIPTOE_BENCH_SOURCE=$folder/source tiptoe-dev bench build"
