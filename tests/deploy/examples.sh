#!/bin/sh
# The deployments of deploy/examples: their files agree with each other and with the daemon. The programs are e2e_examples.
# Exit 77: Python's YAML reader or systemd-analyze is absent. Usage: examples.sh QUIRE_BINARY
set -eu
quire=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
root=$(realpath "$here/../..")
python3 -c 'import yaml' 2>/dev/null || { echo "skipped: Python has no YAML reader (Debian package python3-yaml)"; exit 77; }
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is absent (Debian package systemd)"; exit 77; }
python3 "$here/examples.py" "$quire" "$root"

# The drop-in on the shipped unit.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/quire.service.d"
cp "$root/deploy/examples/systemd/models.conf" "$work/quire.service.d/"
cp "$root/deploy/systemd/quire.socket" "$work"
sed "s|/usr/bin/quire|$quire|; /^Documentation=/d" "$root/deploy/systemd/quire.service" > "$work/quire.service"
complaints=$(cd "$work" && SYSTEMD_UNIT_PATH="$work:" systemd-analyze verify --man=no ./quire.service 2>&1 | grep -E 'quire\.service|models\.conf' || true)
[ -z "$complaints" ] || { printf '%s\n' "$complaints"; exit 1; }
echo "systemd takes the drop-in"
