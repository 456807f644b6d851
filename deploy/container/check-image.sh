#!/bin/sh
# Builds the container image without a Docker engine (buildah, chroot isolation, vfs) on a base made by debootstrap, then runs the
# image as it is meant to be run: its own entry point, as its own user, on a root file system that cannot be written. Needs root,
# debootstrap, buildah, curl and network. Usage: check-image.sh [WORK-FOLDER]
# QUIRE_BASE: a Debian 12 tree to use instead of making one. QUIRE_CCACHE: a compiler cache to build with.
set -eu
cd "$(dirname "$0")/../.."
work=${1:-$(mktemp -d)}
mkdir -p "$work"
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$work/store" --runroot "$work/run" "$@"; }

if [ -z "$(buildah images -q quire-base 2>/dev/null)" ]; then
  base=${QUIRE_BASE:-$work/base}
  [ -d "$base/usr" ] || debootstrap --variant=minbase bookworm "$base" >/dev/null
  container=$(buildah from scratch)
  tar -C "$base" --one-file-system --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -cf "$work/base.tar" .
  buildah add -q "$container" "$work/base.tar" / >/dev/null
  rm "$work/base.tar"
  buildah commit -q --rm "$container" quire-base >/dev/null
fi

buildah build --format docker ${QUIRE_CCACHE:+--volume "$QUIRE_CCACHE:/root/.cache/ccache"} --build-arg BASE=localhost/quire-base -t quire .
field() { buildah inspect --type image --format "{{.Docker.Config.$1}}" quire; }
[ "$(field User)" = 65532:65532 ] || { echo "the image's user is $(field User)"; exit 1; }
field Healthcheck | grep -q 'quire probe http://127.0.0.1:8080/readyz' || { echo "no health check: $(field Healthcheck)"; exit 1; }

container=$(buildah from quire)
root=$(buildah mount "$container")
server=
end() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  ! mountpoint -q "$work/readonly/proc" || umount "$work/readonly/proc"
  ! mountpoint -q "$work/readonly" || umount "$work/readonly"
  buildah rm "$container" >/dev/null
}
trap end EXIT
bytes=$(du -sb "$root" | cut -f1)
echo "image: $((bytes / 1000000)) MB"
[ "$bytes" -lt 100000000 ] || { echo "the image is over 100 MB"; exit 1; }
[ -z "$(find "$root" -perm /6000)" ] || { echo "the image has setuid files"; exit 1; }

# The root file system as a read-only mount; what a container engine adds is /proc alone.
mkdir -p "$work/readonly" "$root/proc"
mount --bind "$root" "$work/readonly"
mount -o remount,ro,bind "$work/readonly"
mount -t proc -o nosuid,nodev,noexec proc "$work/readonly/proc"
if touch "$work/readonly/tmp/file" 2>/dev/null; then echo "the root file system can be written"; exit 1; fi
inside() { chroot --userspec=65532:65532 "$work/readonly" /usr/bin/quire "$@"; }
: > "$work/log"
# exec: so that the process id is the daemon's own.
(exec chroot --userspec=65532:65532 "$work/readonly" /usr/bin/quire serve --host 127.0.0.1 --model /usr/share/quire/quire-demo.gguf --port 0) 2> "$work/log" &
server=$!
until grep -q 'is ready after' "$work/log"; do kill -0 $server || { cat "$work/log"; exit 1; }; done
url=$(sed -n 's/.*listening on \([0-9.:]*\).*/http:\/\/\1/p' "$work/log" | head -1)
inside probe "$url/readyz"
curl -sf "$url/v1/models" | grep -q quire-demo
curl -sf -H 'Content-Type: application/json' -d '{"prompt": "Hello", "max_tokens": 8}' "$url/v1/completions" | grep -q '"text"'
kill -TERM $server
wait $server
server=
if inside probe "$url/readyz" 2>/dev/null; then echo "the probe finds health where nothing runs"; exit 1; fi
echo "the container answers on a read-only root as user 65532, and drains"
