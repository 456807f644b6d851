#!/bin/sh
# The units are good ones by systemd's own checks, and hold the service tightly. Exit 77: systemd-analyze is absent.
# Usage: systemd.sh QUIRE_BINARY
set -eu
quire=$(realpath "$1")
units=$(realpath "$(dirname "$0")/../../deploy/systemd")
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is absent (Debian package systemd)"; exit 77; }

# The binary is not installed where the unit says; verify wants to see it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$units"/quire.socket "$work"
sed "s|/usr/bin/quire|$quire|; /^Documentation=/d" "$units/quire.service" > "$work/quire.service"
complaints=$(cd "$work" && systemd-analyze verify --man=no ./quire.service ./quire.socket 2>&1 | grep -E 'quire\.(service|socket)' || true)
[ -z "$complaints" ] || { printf '%s\n' "$complaints"; exit 1; }

# Enabling the service leaves the port to its configuration: the socket unit, which takes its place, is enabled by name.
root=$work/root
mkdir -p "$root/etc/systemd/system"
cp "$units/quire.service" "$units/quire.socket" "$root/etc/systemd/system/"
systemctl --root="$root" enable quire 2>/dev/null
[ -z "$(find "$root" -path '*.wants/quire.socket')" ] || { echo "enabling quire.service enables quire.socket"; exit 1; }

# Exposure from 0 (none) to 100, as systemd-analyze counts it.
systemd-analyze security --offline=true --threshold=20 --no-pager "$work/quire.service" > "$work/exposure" ||
  { cat "$work/exposure"; exit 1; }
grep 'Overall exposure' "$work/exposure"

# The daemon's default drain ends before the unit's stop timeout.
grace=$(sed -n 's/^TimeoutStopSec=\([0-9]*\)s$/\1/p' "$units/quire.service")
drain=$("$quire" serve --print-config | awk '/^drain:/ { on = 1; next } /^[a-z]/ { on = 0 } on && /delay:|deadline:/ { sum += $2 } END { print sum }')
[ "$grace" -gt "$drain" ] || { echo "TimeoutStopSec=$grace is not longer than a drain of $drain s"; exit 1; }

# The unit denies memory that is writable and executable. PCRE2's patterns are interpreted then: the tokens are the same, and
# the log says what to do. PR_SET_MDWE is the kernel's own form of the denial (Linux 6.3).
grep -q '^MemoryDenyWriteExecute=yes' "$units/quire.service"
model=$(realpath "$(dirname "$0")/../../deploy/demo-model/quire-demo.gguf")
text='{"text":"Hello there, you 2 people! It is 10:45, and 3.14 is no date."}'
denied='import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])'
dev=$(dirname "$quire")/quire-dev
if echo "$text" | python3 -c "$denied" "$dev" tokenize --model "$model" > "$work/interpreted" 2> "$work/log"; then
  echo "$text" | "$dev" tokenize --model "$model" > "$work/compiled"
  cmp "$work/interpreted" "$work/compiled"
  grep -q 'MemoryDenyWriteExecute=no allows it' "$work/log" || { echo "nothing is logged of the interpreted pattern"; cat "$work/log"; exit 1; }
else
  [ $? -eq 77 ] || { cat "$work/log"; exit 1; }
  echo "skipped in part: this kernel has no PR_SET_MDWE"
fi
