#!/usr/bin/env bash
# clang-tidy (naming, function size, common mistakes) over every source of the compilation database that is ours. A file is
# checked again only when it, a header of ours or the settings changed: passes are remembered in the build folder.
set -uo pipefail
build=$1
stamps=$build/tidy
mkdir -p "$stamps"
headers=$( (git ls-files -co --exclude-standard -- '*.h' | sort | xargs cat; cat .clang-tidy) | sha256sum)

check() {
  local source=$1 stamp
  stamp=$stamps/$( (echo "$headers"; cat "$source") | sha256sum | cut -c1-40)
  [ -e "$stamp" ] && return 0
  local out
  if out=$(clang-tidy-16 --quiet --extra-arg=-Wno-unknown-warning-option -p "$build" "$source" 2>&1); then
    touch "$stamp"
  else
    printf '%s\n' "$out" | grep -vE '^[0-9]+ warnings? (and [0-9]+ errors? )?generated|^Suppressed|^Use -header-filter'
    return 1
  fi
}
export -f check
export build stamps headers

grep -o '"file": "[^"]*"' "$build/compile_commands.json" | cut -d'"' -f4 | grep -v "/build/" | sort -u |
  grep -v -F -f tests/lint/generated.txt |
  xargs -P 2 -I{} bash -c 'check {}'
