#!/bin/sh
# Makes quire.rb for Homebrew and quire.nix for Nix, which install the portable archives of a release: installers.sh FOLDER VERSION URL.
# FOLDER has the archives and gets both files; URL is the folder from which the archives will be downloaded. A machine whose archive is
# not there is left out.
set -eu
folder=$1
version=$2
url=$3
rules="s|@VERSION@|$version|; s|@URL@|$url|"
found=
for machine in x86_64 aarch64; do
  archive=quire-$version-linux-$machine.tar.gz
  if [ -e "$folder/$archive" ]; then
    found=1
    rules="$rules; s|@ARCHIVE_$machine@|$archive|; s|@SHA256_$machine@|$(sha256sum "$folder/$archive" | cut -d' ' -f1)|"
  else
    rules="$rules; /begin $machine/,/end $machine/d"
  fi
done
[ -n "$found" ] || exit 0
for form in rb nix; do
  sed "$rules; /# begin [a-z0-9_]*$/d; /# end [a-z0-9_]*$/d" "$(dirname "$0")/quire.$form.in" > "$folder/quire.$form"
done
