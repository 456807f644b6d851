#!/usr/bin/env bash
# tidy.sh BUILD [PREFIX...]: clang-tidy (naming, function size, common mistakes) over every unit of the compilation database
# that is ours, or over those below the prefixes. A unit of a unity build is checked with the sources that it includes, whose
# headers are parsed once. A unit is checked again only when it, a file of ours that it includes or the settings changed: passes
# are remembered in the build folder. JOBS: how many at once.
set -uo pipefail
build=$1
shift
stamps=$build/tidy
mkdir -p "$stamps"

# A source and every header of ours below it; includes are written from the root.
with_headers() {
  local known=$1 new=$1
  while [ -n "$new" ]; do
    new=$(echo "$new" | xargs grep -hos '^#include "[^"]*"' | cut -d'"' -f2 | sort -u | grep -vxF "$known")
    known+=$'\n'$new
  done
  echo "$known" | grep .
}

check() {
  local source=$1 stamp out
  stamp=$stamps/$( (with_headers "$source" | xargs cat 2>/dev/null; cat .clang-tidy) | sha256sum | cut -c1-40)
  [ -e "$stamp" ] && return 0
  if out=$(clang-tidy-16 --quiet --header-filter="$sources" --extra-arg=-Wno-unknown-warning-option -p "$build" "$source" 2>&1); then
    touch "$stamp"
  else
    printf '%s\n' "$out" | grep -vE '^[0-9]+ warnings? (and [0-9]+ errors? )?generated|^Suppressed|^Use -header-filter'
    return 1
  fi
}
# Headers, and the sources of a unity build's units.
sources='/(server|core|kernels|config|tests)/.*\.(h|cpp)$'
export -f check with_headers
export build stamps sources

prefixes=("${@:-}")
grep -o '"file": "[^"]*"' "$build/compile_commands.json" | cut -d'"' -f4 | sed "s#^$PWD/##" |
  grep -E "^(server|core|kernels|config|tests)/.*\.cpp$|/unity_[0-9]+_cxx\.cxx$" |
  sort -u | grep -v -F -f tests/lint/generated.txt | grep -E "^($(IFS='|'; echo "${prefixes[*]}"))" |
  xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'check {}'
