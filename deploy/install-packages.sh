#!/bin/sh
# Installs the Debian packages named, if any is missing; says nothing when all are there. Costs one dpkg-query.
set -eu

missing=
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')
for package in "$@"; do
  printf '%s\n' "$installed" | grep -qx "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  sudo=
elif command -v sudo >/dev/null; then
  sudo=sudo
else
  echo "missing packages:$missing; run as root: apt-get install$missing" >&2
  exit 1
fi
echo "installing:$missing"
heartbeat=$(dirname "$0")/heartbeat.sh
"$heartbeat" "still reading the lists of packages" $sudo apt-get update -q
# shellcheck disable=SC2086 # one word per package
exec "$heartbeat" "still installing" $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o Dpkg::Use-Pty=0 --no-install-recommends $missing
