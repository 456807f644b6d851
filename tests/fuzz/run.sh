#!/usr/bin/env bash
# Runs every libFuzzer target: a build folder, seconds for each. Inputs that reach something new are kept in
# BUILD/corpus/<name>; one that breaks something is left in BUILD/findings, and the exit code is 1.
set -uo pipefail
build=$1
seconds=$2
folder=$(cd "$(dirname "$0")" && pwd)
failed=0
mkdir -p "$build/findings"
for target in "$build"/tests/fuzz_*; do
  name=${target##*/fuzz_}
  mkdir -p "$build/corpus/$name"
  if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
      -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" "$folder/corpus/$name" > "$build/findings/$name.log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/findings/$name.log") runs," \
      "$(grep -oE 'cov: [0-9]+' "$build/findings/$name.log" | tail -1), nothing found"
  else
    echo "$name: broken, see $build/findings/$name.log"
    tail -20 "$build/findings/$name.log"
    failed=1
  fi
done
exit $failed
