#!/bin/sh
# Builds the container image without a Docker engine (buildah, chroot isolation, vfs) on a base made by debootstrap, then runs the
# image's root file system as an unprivileged user and asks it. Needs root, debootstrap and buildah. Prints the image's size.
set -eu
cd "$(dirname "$0")/../.."
work=${1:-$(mktemp -d)}
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot

if ! buildah --root "$work/store" --runroot "$work/run" images -q quire-base >/dev/null 2>&1 ||
   [ -z "$(buildah --root "$work/store" --runroot "$work/run" images -q quire-base 2>/dev/null)" ]; then
  [ -d "$work/base/usr" ] || debootstrap --variant=minbase bookworm "$work/base" >/dev/null
  container=$(buildah --root "$work/store" --runroot "$work/run" from scratch)
  buildah --root "$work/store" --runroot "$work/run" copy -q "$container" "$work/base" / >/dev/null
  buildah --root "$work/store" --runroot "$work/run" commit -q "$container" quire-base >/dev/null
fi

buildah --root "$work/store" --runroot "$work/run" build --build-arg BASE=quire-base -t quire .
container=$(buildah --root "$work/store" --runroot "$work/run" from quire)
root=$(buildah --root "$work/store" --runroot "$work/run" mount "$container")
bytes=$(du -sb "$root" | cut -f1)
echo "image: $((bytes / 1000000)) MB"

chroot --userspec=65532:65532 "$root" /usr/bin/quire serve --host 127.0.0.1 --port 18099 --model /usr/share/quire/quire-demo.gguf &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until chroot --userspec=65532:65532 "$root" /usr/bin/quire probe http://127.0.0.1:18099/readyz 2>/dev/null; do kill -0 $server; done
curl -sf http://127.0.0.1:18099/v1/models | grep -q quire-demo
kill -TERM $server
wait $server
trap - EXIT
[ "$bytes" -lt 100000000 ] || { echo "the image is over 100 MB"; exit 1; }
echo "the container answers and drains"
