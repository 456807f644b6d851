#!/bin/sh
# The portable archive in a bare root of a distribution: portable.sh ARCHIVE SYSTEM FOLDER unpacks it, serves the bundled model, has a
# chat, installs it for the system and for a user, and removes it again. On a system whose glibc is too old, install.sh must say so.
# Needs root, debootstrap and the network.
set -eu
archive=$(realpath "$1")
system=$2
root=$(realpath -m "$3")
here=$(realpath "$(dirname "$0")")
trap '"$here/bare_root.sh" --end "$root"' EXIT
"$here/bare_root.sh" "$system" "$root"
name=$(basename "$archive" .tar.gz)
rm -rf "$root/opt/$name"
begun=$(date +%s)
tar -C "$root/opt" -xzf "$archive"
within() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root "$@"; }

if [ "$system" = debian-11 ]; then
  if within "/opt/$name/install.sh" > "$root/install.log" 2>&1; then echo "it installs on $system: mend this test" >&2; exit 1; fi
  grep -q 'glibc 2.34 or later' "$root/install.log" || { cat "$root/install.log" >&2; exit 1; }
  echo "$system: refused, as its glibc is older than 2.34"
  exit 0
fi

# Usage: serves COMMAND... The daemon, with one chat.
serves() {
  setsid chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root "$@" --port 18082 > "$root/serve.log" 2>&1 &
  daemon=$!
  "$here/one_chat.sh" http://127.0.0.1:18082 $daemon || { cat "$root/serve.log" >&2; exit 1; }
  kill $daemon
  wait $daemon
}
serves "/opt/$name/quire" serve "/opt/$name/quire-demo.gguf"
echo "$system: a chat after $(($(date +%s) - begun)) s"

# An exception is caught: the binary brings its own unwinder, which finds its tables.
code=0
within "/opt/$name/quire" serve /nowhere.gguf > "$root/serve.log" 2>&1 || code=$?
[ $code -eq 2 ] && grep -q nowhere "$root/serve.log" || { cat "$root/serve.log" >&2; exit 1; }

# For the system, then for a user, with a unit; what is installed is removed again.
find "$root/usr/local" "$root/root" ! -type d | sort > "$root/tmp/before"
within "/opt/$name/install.sh"
serves quire serve /usr/local/share/quire/quire-demo.gguf
within quire completion bash > /dev/null
within "/opt/$name/install.sh" --uninstall
find "$root/usr/local" "$root/root" ! -type d | sort | diff "$root/tmp/before" - || { echo "something is left in /usr/local" >&2; exit 1; }
within "/opt/$name/install.sh" --prefix /root/.local --service
serves /root/.local/bin/quire serve /root/.local/share/quire/quire-demo.gguf
grep -q '^ExecStart=.*/root/.local/bin/quire serve' "$root/root/.config/systemd/user/quire.service"
if grep @PREFIX@ "$root/root/.config/systemd/user/quire.service"; then exit 1; fi
within "/opt/$name/install.sh" --prefix /root/.local --service --uninstall
find "$root/usr/local" "$root/root" ! -type d | sort | diff "$root/tmp/before" - || { echo "something is left in ~/.local" >&2; exit 1; }
echo "$system: the archive works and is removed without a trace"
