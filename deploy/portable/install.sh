#!/bin/sh
# Installs Quire from the folder in which this file lies: as root into /usr/local, otherwise into ~/.local.
#   ./install.sh [--prefix FOLDER] [--service] [--uninstall]
# --service adds a systemd unit of this user (systemctl --user start quire). Nothing outside of the prefix and that unit is touched.
set -eu
from=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=${HOME:?HOME is not set: name a folder with --prefix}/.local; fi
service=
remove=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -gt 1 ] || { echo "--prefix needs a folder" >&2; exit 2; }; prefix=$2; shift 2 ;;
    --service) service=1; shift ;;
    --uninstall) remove=1; shift ;;
    *) echo "unknown argument $1; usage: install.sh [--prefix FOLDER] [--service] [--uninstall]" >&2; exit 2 ;;
  esac
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
unit=${XDG_CONFIG_HOME:-${HOME:-}/.config}/systemd/user/quire.service

if [ -n "$remove" ]; then
  rm -f "$prefix/bin/quire" "$prefix/share/bash-completion/completions/quire" "$prefix/share/zsh/site-functions/_quire" \
    "$prefix/share/fish/vendor_completions.d/quire.fish"
  rm -f "$prefix"/share/man/man1/quire.1* "$prefix"/share/man/man1/quire-*.1*
  rm -rf "$prefix/share/quire"
  [ -z "$service" ] || rm -f "$unit" "$(dirname "$unit")/default.target.wants/quire.service"
  echo "removed from $prefix"
  exit 0
fi

# The machine's number in the binary's header.
case $(od -An -tu1 -j18 -N1 "$from/quire" | tr -d ' ') in 62) machine=x86_64 ;; 183) machine=aarch64 ;; *) machine=another ;; esac
[ "$(uname -m)" = "$machine" ] || { echo "this archive is for $machine, and this machine is $(uname -m): take the archive with -linux-$(uname -m) in its name" >&2; exit 1; }
"$from/quire" --version >/dev/null 2>&1 || { "$from/quire" --version || true; echo "this binary does not start here: it needs Linux with glibc 2.34 or later (ldd --version says which)" >&2; exit 1; }
install -D -m 755 "$from/quire" "$prefix/bin/quire"
install -D -m 644 "$from/quire-demo.gguf" "$prefix/share/quire/quire-demo.gguf"
install -D -m 644 "$from/quire.yaml" "$prefix/share/quire/quire.yaml"
for text in "$from"/LICENSE "$from"/licenses/*; do install -D -m 644 "$text" "$prefix/share/quire/licenses/$(basename "$text")"; done
for page in "$from"/man/*; do install -D -m 644 "$page" "$prefix/share/man/man1/$(basename "$page")"; done
install -D -m 644 "$from/completion/quire" "$prefix/share/bash-completion/completions/quire"
install -D -m 644 "$from/completion/_quire" "$prefix/share/zsh/site-functions/_quire"
install -D -m 644 "$from/completion/quire.fish" "$prefix/share/fish/vendor_completions.d/quire.fish"
if [ -n "$service" ]; then
  mkdir -p "$(dirname "$unit")"
  sed "s|@PREFIX@|$prefix|g" "$from/quire.service" > "$unit"
  echo "systemctl --user daemon-reload && systemctl --user enable --now quire   starts it now and at each login"
fi
echo "installed $("$prefix/bin/quire" --version) as $prefix/bin/quire"
case :${PATH:-}: in
  *:"$prefix/bin":*) quire=quire ;;
  *) quire=$prefix/bin/quire; echo "$prefix/bin is not in PATH" ;;
esac
[ -e "$from/licenses/cuda-cudart.txt" ] || [ ! -e /proc/driver/nvidia/version ] ||
  echo "this machine has an NVIDIA driver, and this binary computes on the CPU: the archive with -cuda in its name computes on the GPU"
echo "$quire serve $prefix/share/quire/quire-demo.gguf   serves the bundled toy model on http://127.0.0.1:8080"
