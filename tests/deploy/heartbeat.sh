#!/bin/sh
# deploy/heartbeat.sh: output in order, also of lines that arrive in two parts; a sign of life in each silence; the command's status.
set -eu
root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
# Each silence lasts until the sign of life is in the output.
HEARTBEAT=1 WORK=$work timeout 60 "$root/deploy/heartbeat.sh" working sh -c '
  wait_for() { until [ "$(grep -c "^\.\.\. working, [0-9]* s$" "$WORK/out")" -ge "$1" ]; do sleep 0.1; done; }
  echo first
  wait_for 1
  printf "sec"
  wait_for 2
  echo ond
  echo third >&2
  printf "no end of line"
  exit 3' > "$work/out" || status=$?
[ "$status" -eq 3 ] || { echo "status $status instead of 3"; cat "$work/out"; exit 1; }
grep -v '^\.\.\. working' "$work/out" > "$work/lines"
printf 'first\nsecond\nthird\nno end of line\n' | diff - "$work/lines"
[ "$(tail -n 1 "$work/out")" = "no end of line" ]
echo "the heartbeat is heard in silence only, and changes nothing else"
