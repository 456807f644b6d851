#!/usr/bin/env bash
# The object of an ISA level may define nothing for the linker but its kernel tables: a shared inline function compiled there
# could be chosen for the whole program and fault on an older processor. One argument: the archive of kernels/.
set -euo pipefail
archive=$1
tables=0
while read -r object kind name; do
  case $kind in
    [a-z] | U) [ "$kind" != u ] && [ "$kind" != v ] && [ "$kind" != w ] && continue ;;
  esac
  case $name in
    quire::k*Kernels | quire::k*Additions) tables=$((tables + 1)) ;;
    __odr_asan* | *asan* | *ubsan* | *tsan*) ;;  # a sanitizer's own
    *) echo "$object defines $kind $name"; exit 1 ;;
  esac
done < <(nm -A -C "$archive" 2>/dev/null | sed -nE 's/^[^:]*:(isa_[^:]*):[0-9a-f ]{16} ([A-Za-z]) (.*)$/\1 \2 \3/p')
[ "$tables" -ge 4 ] || { echo "only $tables kernel tables found in $archive"; exit 1; }
echo "$tables kernel tables, no other symbols"
