#!/bin/sh
# The Debian packages that a binary of another architecture needs, as a control file lists them: each library that it names, by the
# package that owns the same file on this machine, which has them all to build with. Usage: debian-depends.sh BINARY
set -eu
here=$(gcc -print-multiarch)
packages=
for library in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^ld-linux'); do
  package=$(dpkg -S "*/$here/$library" | sed -n 's/:.*//p' | sort -u | head -1)
  [ -n "$package" ] || { echo "no package has $library" >&2; exit 1; }
  packages="$packages $package"
done
# shellcheck disable=SC2086 # one word per package
printf '%s\n' $packages | sort -u | paste -sd, | sed 's/,/, /g'
