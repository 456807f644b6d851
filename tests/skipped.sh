#!/bin/sh
# Counts and names what the last run of ctest left out: whole tests, Catch's cases and node's that said so. Usage: skipped.sh BUILD
set -eu
log=$1/Testing/Temporary/LastTest.log
skips=$(grep -aoE 'skipped: .*|# SKIP .*' "$log" | sed 's/^# SKIP /skipped: /' | sort | uniq -c || true)
[ -n "$skips" ] || { echo "no check was skipped"; exit 0; }
echo "$(echo "$skips" | wc -l) kinds of checks were skipped (how often, which):"
echo "$skips"
