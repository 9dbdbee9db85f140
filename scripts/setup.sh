#!/usr/bin/env bash
# scripts/setup.sh demo|pictures|test|nightly: the system packages and Rust extras that this target of `make` needs.
# As root they are installed; otherwise the exact line to run is printed and the script ends with status 2.
# Services of a package are never started. Tools that only widen the tests (nightly Rust,
# cargo-deny, cargo-fuzz, mdbook) may be missing; their steps are then skipped.
. "$(dirname "$0")/common.sh"

what=${1:-test}
demo=(redis-server redis-tools)
tests=("${demo[@]}" memcached nginx-light sqlite3 python3 gdb file linux-perf g++ gcc-multilib musl-tools binutils codespell strace debuginfod clang "clang-$(clang_major)" "llvm-$(clang_major)")

# Any installed Go is enough, so that Debian's package, which is large, need not be installed.
command -v go >/dev/null || [[ -x /usr/local/go/bin/go ]] || tests+=(golang-go)

# Any installed Java is enough.
command -v javac >/dev/null || tests+=(default-jdk-headless)

# The real programs of tests/e2e/campaign.rs, lintian, which checks the Debian package, and what makes whole machines
# and starts other kernels.
nightly=("${tests[@]}" perl xz-utils openssl git libpython3.11-testsuite postgresql mariadb-server-core mariadb-client nodejs lintian debootstrap qemu-system-x86)

case $what in
nightly) packages=("${nightly[@]}") ;;
demo) packages=("${demo[@]}") ;;
pictures) packages=("${demo[@]}" linux-perf bpftrace binutils) ;;
test) packages=("${tests[@]}") ;;
*) echo "usage: scripts/setup.sh demo|pictures|test|nightly" >&2; exit 2 ;;
esac

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

# This policy forbids starting services. It must be removed when the packages are installed.
install_packages() {
    local policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap "rm -f $policy" EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need_cargo() {
    have cargo && return
    echo "error: no \`cargo\`" >&2
    echo "hint: install Rust's toolchain, see https://rustup.rs" >&2
    exit 2
}

system() {
    have dpkg-query || { echo "note: not a Debian system; needs: ${packages[*]}"; return; }
    mapfile -t missing < <(missing_packages "${packages[@]}")
    [[ ${#missing[@]} -eq 0 ]] && return
    if [[ $(id -u) -ne 0 ]]; then
        echo "error: missing packages: ${missing[*]}" >&2
        echo "hint: sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 2
    fi
    echo "installing: ${missing[*]}"
    install_packages "${missing[@]}"
}

# try SECONDS COMMAND…: runs a command that installs an extra. It may fail, because the step that needs the extra
# reports what is missing. Its output goes to target/setup.log.
try() {
    timeout "$1" "${@:2}" >>target/setup.log 2>&1 || true
}

extras() {
    # Built without optimisation, because building these tools takes longer than running them.
    cargo deny --version >/dev/null 2>&1 || try 900 cargo install --debug --locked cargo-deny
    [[ $what == nightly ]] || return 0
    if have rustup && ! nightly miri; then
        try 300 rustup toolchain install nightly --profile minimal --component miri --component rust-src
    fi
    have mdbook || try 900 cargo install --debug --locked mdbook
    nightly fuzz || try 600 cargo install --debug --locked cargo-fuzz
}

# Mounts tracefs, the kernel's list of tracepoints, if the system has not.
tracefs() {
    [[ $(id -u) -ne 0 || -e /sys/kernel/tracing/set_event ]] && return
    mount -t tracefs tracefs /sys/kernel/tracing || echo "note: tracefs cannot be mounted: tests that need it are skipped"
}

need_cargo
system
: >"$RESULTS"
: >"$SKIPS"
if [[ $what != demo ]]; then
    tracefs
    extras
fi
