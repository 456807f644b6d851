#!/usr/bin/env bash
# threads.sh: Clang's thread-safety analysis of the units that a thread role is about, by clang-tidy. Exit 1 where one breaks a
# rule, or where a rule that is broken on purpose (thread_violations.cpp) is not seen.
set -uo pipefail
cd "$(dirname "$0")/../.."
failed=0

# Diagnostics alone are no check to clang-tidy: one that finds nothing stands beside them.
analyse() { # source, further compiler options
  local source=$1
  shift
  clang-tidy-16 --quiet --checks='-*,clang-diagnostic-thread-safety*,bugprone-terminating-continue' --warnings-as-errors='*' "$source" -- \
    -std=c++20 -I. -Wthread-safety -DQUIRE_VERSION='""' "$@" 2>&1
}

for violation in 1 2 3 4 5 6 7 8; do
  out=$(analyse tests/lint/thread_violations.cpp -DVIOLATION=$violation)
  grep -q 'clang-diagnostic-thread-safety-analysis' <<< "$out" && continue
  echo "threads: violation $violation of thread_violations.cpp is accepted"
  failed=1
done
for source in tests/lint/thread_violations.cpp core/{executor,draft,engine,engine/figures}/*.cpp core/kv/tiers/tier_folder.cpp server/wire/mailbox.cpp server/run/operation_driver.cpp; do
  out=$(analyse "$source" -DVIOLATION=0) && continue
  printf '%s\n' "$out" | grep -E 'error|warning'
  failed=1
done
[ $failed = 0 ] && echo "threads: the rules hold, and bite"
exit $failed
