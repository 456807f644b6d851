#!/bin/sh
# A portable archive in a bare root of a distribution: portable.sh ARCHIVE SYSTEM FOLDER unpacks it, serves the bundled model, has a
# chat, installs it for the system and for a user, and removes it again. On a system whose glibc is too old, install.sh must say so. An
# archive with CUDA serves without a driver, and names the driver if it is to use a GPU. Needs root, debootstrap and the network; for an
# archive of arm64 on x86-64 qemu-user-static too.
set -eu
archive=$(realpath "$1")
system=$2
root=$(realpath -m "$3")
here=$(realpath "$(dirname "$0")")
name=$(basename "$archive" .tar.gz)
case $name in
  *-linux-x86_64*) ARCH=amd64 ;;
  *-linux-aarch64*) ARCH=arm64 ;;
  *) echo "$archive is for no machine that is known" >&2; exit 2 ;;
esac
export ARCH
system_arch="$system $ARCH"
trap '"$here/bare_root.sh" --end "$root"' EXIT
"$here/bare_root.sh" "$system" "$root"
rm -rf "$root/opt/$name"
begun=$(date +%s)
tar -C "$root/opt" -xzf "$archive"
within() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root "$@"; }

if [ "$system" = debian-11 ]; then
  if within "/opt/$name/install.sh" > "$root/install.log" 2>&1; then echo "it installs on $system: mend this test" >&2; exit 1; fi
  grep -q 'glibc 2.34 or later' "$root/install.log" || { cat "$root/install.log" >&2; exit 1; }
  echo "$system_arch: refused, as its glibc is older than 2.34"
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
echo "$system_arch: a chat after $(($(date +%s) - begun)) s"

# An exception is caught: the binary brings its own unwinder, which finds its tables.
code=0
within "/opt/$name/quire" serve /nowhere.gguf > "$root/serve.log" 2>&1 || code=$?
[ $code -eq 2 ] && grep -q nowhere "$root/serve.log" || { cat "$root/serve.log" >&2; exit 1; }

case $name in
  *-cuda)
    code=0
    within "/opt/$name/quire" serve "/opt/$name/quire-demo.gguf" --device cuda > "$root/serve.log" 2>&1 || code=$?
    [ $code -eq 2 ] && grep -q 'no NVIDIA driver' "$root/serve.log" || { cat "$root/serve.log" >&2; exit 1; }
    echo "$system_arch: a GPU without a driver is refused: $(grep 'no NVIDIA driver' "$root/serve.log")" ;;
esac

# For the system, then for a user, with a unit; what is installed is removed again.
find "$root/usr/local" "$root/root" ! -type d | sort > "$root/tmp/before"
within "/opt/$name/install.sh"
within "/opt/$name/install.sh" > "$root/install.log"  # an upgrade over it
serves quire serve /usr/local/share/quire/quire-demo.gguf
within quire completion bash > /dev/null
within "/opt/$name/install.sh" --uninstall
find "$root/usr/local" "$root/root" ! -type d | sort | diff "$root/tmp/before" - || { echo "something is left in /usr/local" >&2; exit 1; }
within "/opt/$name/install.sh" --prefix /root/.local --service
serves /root/.local/bin/quire serve /root/.local/share/quire/quire-demo.gguf
unit=root/.config/systemd/user/quire.service
grep -q '^ExecStart=.*"/root/.local/bin/quire" serve' "$root/$unit"
if grep @PREFIX@ "$root/$unit"; then exit 1; fi
# Links that `systemctl --user enable` makes.
mkdir -p "$root/root/.config/systemd/user/default.target.wants"
ln -s "/$unit" "$root/root/.config/systemd/user/default.target.wants/quire.service"
within "/opt/$name/install.sh" --prefix /root/.local --service --uninstall
find "$root/usr/local" "$root/root" ! -type d | sort | diff "$root/tmp/before" - || { echo "something is left in ~/.local" >&2; exit 1; }
echo "$system_arch: the archive works and is removed without a trace"
