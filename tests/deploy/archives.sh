#!/bin/sh
# The scripts around the portable archives, without one: what archive.sh refuses, what install.sh says on another machine, and the formula
# and expression that installers.sh makes. Usage: archives.sh QUIRE_BINARY
set -eu
binary=$(realpath "$1")
root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -m) in x86_64) other=aarch64 number='\267' ;; *) other=x86_64 number='\076' ;; esac

# Usage: refused NAME TEXT. A build of that archive, with this binary, is refused with the text.
refused() {
  printf "name='%s'\nsysroot=''\ncuda=''\ncuda_license=''\n" "$1" > "$work/archive.env"
  if "$root/deploy/portable/archive.sh" "$work" "$work" 2> "$work/why"; then echo "an archive $1 was made" >&2; exit 1; fi
  grep -q "$2" "$work/why" || { cat "$work/why" >&2; exit 1; }
}
cp "$binary" "$work/quire"
refused "quire-1.0.0-linux-$other" "is for $(uname -m), and the archive is quire-1.0.0-linux-$other"
refused "quire-1.0.0-linux-$(uname -m)" 'needs libraries beside glibc: .*libssl'

# Another machine's archive.
mkdir "$work/foreign"
cp "$root/deploy/portable/install.sh" "$work/foreign/"
{ head -c 18 "$binary"; printf "$number"; tail -c +20 "$binary" | head -c 100; } > "$work/foreign/quire"
if "$work/foreign/install.sh" --prefix "$work/prefix" 2> "$work/why"; then echo "another machine's archive was installed" >&2; exit 1; fi
grep -q "this archive is for $other, and this machine is $(uname -m)" "$work/why" || { cat "$work/why" >&2; exit 1; }
[ ! -e "$work/prefix" ]

# Usage: installs FILE ARCHIVE. The file names the archive and its checksum.
installs() {
  grep -q "https://quire.invalid/v1/$2\"" "$work/release/$1" && grep -q "\"$(sha256sum "$work/release/$2" | cut -d' ' -f1)\"" "$work/release/$1" ||
    { echo "$1 does not install $2:" >&2; cat "$work/release/$1" >&2; exit 1; }
}
mkdir "$work/release"
"$root/deploy/release/installers.sh" "$work/release" 1.0.0 https://quire.invalid/v1
[ -z "$(ls "$work/release")" ] || { echo "a formula without an archive" >&2; exit 1; }
for machine in x86_64 aarch64; do
  echo "$machine" > "$work/release/quire-1.0.0-linux-$machine.tar.gz"
  "$root/deploy/release/installers.sh" "$work/release" 1.0.0 https://quire.invalid/v1
  for form in rb nix; do
    installs quire.$form "quire-1.0.0-linux-$machine.tar.gz"
    if grep -nE '@[A-Z]' "$work/release/quire.$form"; then echo "quire.$form has an empty field" >&2; exit 1; fi
  done
  # Their parsers, where they are (Debian packages ruby, nix-bin).
  ! command -v ruby >/dev/null || ruby -c "$work/release/quire.rb" >/dev/null
  ! command -v nix-instantiate >/dev/null || nix-instantiate --parse "$work/release/quire.nix" >/dev/null
done
for form in rb nix; do installs quire.$form quire-1.0.0-linux-x86_64.tar.gz; done
echo "archives, their installation and their formulas are what they should be"
