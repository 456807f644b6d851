#!/bin/sh
# Makes what a release consists of: release.sh BUILD [OUTPUT]. The version is CMakeLists.txt's; CHANGELOG.md must have it, with a date
# in place of "not released yet", and the tree must be as committed. SNAPSHOT=1 makes the same of any tree, NO_IMAGE=1 leaves the image out. Nothing is
# published.
set -eu
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^project(quire VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
output=$(realpath -m "${2:-build/release-$version}")

if [ -z "${SNAPSHOT:-}" ]; then
  [ -z "$(git status --porcelain)" ] || { echo "the tree has changes that are not committed (SNAPSHOT=1 ignores them)" >&2; exit 1; }
  grep -qE "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
    { echo "CHANGELOG.md has no heading '## $version, YYYY-MM-DD' (SNAPSHOT=1 ignores it)" >&2; exit 1; }
fi
rm -rf "$output"
mkdir -p "$output"

git archive --format=tar --prefix="quire-$version/" HEAD | gzip -9n > "$output/quire-$version.tar.gz"

cpack --config "$build/CPackConfig.cmake" -B "$output/deb" > "$output/cpack.log" || { cat "$output/cpack.log"; exit 1; }
mv "$output"/deb/quire_*.deb "$output/"
rm -r "$output/deb" "$output/cpack.log"

if [ -n "${NO_IMAGE:-}" ]; then
  echo "no image: NO_IMAGE is set"
elif docker info >/dev/null 2>&1; then
  docker build -q -t "quire:$version" .
  docker save "quire:$version" | gzip -9n > "$output/quire-$version-image.tar.gz"
elif command -v buildah >/dev/null; then
  buildah build -q --format docker -t "quire:$version" .
  buildah push -q "quire:$version" "docker-archive:$output/quire-$version-image.tar:quire:$version"
  gzip -9n "$output/quire-$version-image.tar"
else
  echo "no image: neither docker nor buildah is here"
fi

python3 deploy/release/sbom.py "$build/quire" "$version" > "$output/quire-$version.spdx.json"
(cd "$output" && sha256sum -- *.tar.gz *.deb *.spdx.json > SHA256SUMS)
echo "$output:"
ls -l "$output"
