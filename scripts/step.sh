#!/usr/bin/env bash
# scripts/step.sh NAME COMMAND…: runs a step of `make test` and prints how long it took.
. "$(dirname "$0")/common.sh"

name=$1
shift
begin=$(date +%s)
"$@" || { status=$?; echo "step failed: $name, after $(($(date +%s) - begin)) s" >&2; exit $status; }
echo "step: $name, $(($(date +%s) - begin)) s"
passed "$name"
