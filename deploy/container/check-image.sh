#!/bin/sh
# Builds the container image for x86-64 and arm64 in one call, without a Docker engine (buildah, chroot isolation, vfs) on a base made
# by debootstrap, then runs each as it is meant to be run: its own entry point, as its own user, on a root file system that cannot be
# written; that of arm64 under qemu. Needs root, debootstrap, buildah, qemu-user-static, curl and network.
# Usage: check-image.sh [WORK-FOLDER]
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

buildah manifest rm quire 2>/dev/null || true
# BUILDPLATFORM: old versions of buildah do not set it, and look for a base of the target's architecture.
buildah build --format docker --platform linux/amd64,linux/arm64 --manifest quire \
  ${QUIRE_CCACHE:+--volume "$QUIRE_CCACHE:/root/.cache/ccache"} --build-arg BASE=localhost/quire-base \
  --build-arg "BUILDPLATFORM=linux/$(dpkg --print-architecture)" .

container=
server=
end() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  ! mountpoint -q "$work/readonly/proc" || umount "$work/readonly/proc"
  ! mountpoint -q "$work/readonly" || umount "$work/readonly"
  [ -z "$container" ] || buildah rm "$container" >/dev/null
  container=
}
trap end EXIT

# check ARCHITECTURE [EMULATOR]: the emulator is put into the working container, beside the image.
check() {
  digest=$(buildah manifest inspect quire | python3 -c 'import json, sys
for image in json.load(sys.stdin)["manifests"]:
    if image["platform"]["architecture"] == sys.argv[1]: print(image["digest"])' "$1")
  container=$(buildah from --arch "$1" "quire@$digest" 2>/dev/null || buildah from --arch "$1" quire)
  field() { buildah inspect --type container --format "{{.Docker.Config.$1}}" "$container"; }
  [ "$(buildah inspect --type container --format '{{.OCIv1.Architecture}}' "$container")" = "$1" ] || { echo "not an image for $1"; exit 1; }
  [ "$(field User)" = 65532:65532 ] || { echo "the image's user is $(field User)"; exit 1; }
  field Healthcheck | grep -q 'quire probe http://127.0.0.1:8080/readyz' || { echo "no health check: $(field Healthcheck)"; exit 1; }
  root=$(buildah mount "$container")
  bytes=$(du -sb "$root" | cut -f1)
  echo "image for $1: $((bytes / 1000000)) MB"
  [ "$bytes" -lt 100000000 ] || { echo "the image is over 100 MB"; exit 1; }
  [ -z "$(find "$root" -perm /6000)" ] || { echo "the image has setuid files"; exit 1; }
  emulator=
  if [ $# -gt 1 ]; then
    cp "$2" "$root/emulator"
    emulator="/emulator -cpu max"
  fi

  # The root file system as a read-only mount; what a container engine adds is /proc alone.
  mkdir -p "$work/readonly" "$root/proc"
  mount --bind "$root" "$work/readonly"
  mount -o remount,ro,bind "$work/readonly"
  mount -t proc -o nosuid,nodev,noexec proc "$work/readonly/proc"
  if touch "$work/readonly/tmp/file" 2>/dev/null; then echo "the root file system can be written"; exit 1; fi
  # shellcheck disable=SC2086 # the emulator's words
  inside() { chroot --userspec=65532:65532 "$work/readonly" $emulator /usr/bin/quire "$@"; }
  : > "$work/log"
  # exec: so that the process id is the daemon's own.
  # shellcheck disable=SC2086
  (exec chroot --userspec=65532:65532 "$work/readonly" $emulator /usr/bin/quire serve --host 127.0.0.1 \
    --model /usr/share/quire/quire-demo.gguf --port 0) 2> "$work/log" &
  server=$!
  until grep -q 'is ready after' "$work/log"; do kill -0 $server || { cat "$work/log"; exit 1; }; done
  url=$(sed -n 's/.*listening on \([0-9.:]*\).*/http:\/\/\1/p' "$work/log" | head -1)
  inside probe "$url/readyz"
  curl -sf "$url/v1/models" | grep -q quire-demo
  curl -sf "$url/" | grep -qi '<!doctype html>'
  curl -sf -H 'Content-Type: application/json' -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}' \
    "$url/v1/chat/completions" | grep -q '"content"'
  kill -TERM $server
  wait $server
  server=
  if inside probe "$url/readyz" 2>/dev/null; then echo "the probe finds health where nothing runs"; exit 1; fi
  echo "the container for $1 answers on a read-only root as user 65532, and drains"
  end
}
check amd64
check arm64 "$(command -v qemu-aarch64-static)"
