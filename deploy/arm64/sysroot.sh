#!/bin/sh
# Makes a root of Debian 12 for arm64 to build against and to run binaries on under qemu: downloads the packages named, with all that
# they depend on, and unpacks them. The system's own packages, architectures and apt lists stay as they are.
# Usage: sysroot.sh FOLDER PACKAGE...
set -eu
root=$1
shift
stamp=$root/.packages
wanted=$(printf '%s\n' "$@" | sort)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

mkdir -p "$root"
root=$(cd "$root" && pwd)
apt=$root/.apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/preferences.d"
: > "$apt/status"
# Everything that apt keeps lies in the root; of the system it reads the list of sources and the keys.
options="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$apt/state -o Dir::State::status=$apt/status
  -o Dir::Cache=$apt/cache -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Debug::NoLocking=true -q"
# shellcheck disable=SC2086 # one word per option
apt-get $options update
# shellcheck disable=SC2086
apt-get $options install -y --download-only "$@"
# dpkg's list of what is there: dpkg-query --admindir FOLDER/var/lib/dpkg.
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
: > "$root/var/lib/dpkg/status"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --extract "$package" "$root"
  { dpkg-deb --field "$package"; printf 'Status: install ok installed\n\n'; } >> "$root/var/lib/dpkg/status"
done
rm -rf "$apt/cache/archives"
# Absolute links would lead into the system's own libraries.
find "$root/usr/lib" "$root/lib" -type l -lname '/*' 2>/dev/null | while read -r link; do
  ln -sfn "$root$(readlink "$link")" "$link"
done
printf '%s\n' "$wanted" > "$stamp"
