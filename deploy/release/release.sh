#!/bin/sh
# Makes what a release consists of: release.sh BUILD [OUTPUT [FILE...]]. The version is CMakeLists.txt's; CHANGELOG.md must have it, with a
# date in place of "not released yet", and the tree must be as committed. SNAPSHOT=1 makes the same of any tree, NO_IMAGE=1 leaves the
# image out, PORTABLE="BUILD..." adds the portable archives of those builds, with a formula for Homebrew and an expression for Nix that
# install them from URL, the folder in which the files will be. FILEs, such as packages made on other systems, are added. Nothing is
# published.
set -eu
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^project(quire VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
output=$(realpath -m "${2:-build/release-$version}")
shift $(($# < 2 ? $# : 2))

if [ -z "${SNAPSHOT:-}" ]; then
  [ -z "$(git status --porcelain)" ] || { echo "the tree has changes that are not committed (SNAPSHOT=1 ignores them)" >&2; exit 1; }
  grep -qE "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
    { echo "CHANGELOG.md has no heading '## $version, YYYY-MM-DD' (SNAPSHOT=1 ignores it)" >&2; exit 1; }
fi
for field in version appVersion; do
  grep -qE "^$field: \"?$version\"?$" deploy/helm/quire/Chart.yaml || { echo "deploy/helm/quire/Chart.yaml: $field is not $version" >&2; exit 1; }
done
rm -rf "$output"
mkdir -p "$output"
[ $# -eq 0 ] || cp -- "$@" "$output/"
# The part of the list of changes that is this version's.
awk -v heading="## $version," '/^## / { on = index($0, heading) == 1 } on' CHANGELOG.md > "$output/NOTES.md"

git archive --format=tar --prefix="quire-$version/" HEAD | gzip -9n > "$output/quire-$version.tar.gz"

# As `helm package` makes it.
tar -C deploy/helm --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -c quire | gzip -9n > "$output/quire-chart-$version.tgz"

cpack --config "$build/CPackConfig.cmake" -B "$output/deb" > "$output/cpack.log" || { cat "$output/cpack.log"; exit 1; }
mv "$output"/deb/quire_*.deb "$output/"
rm -r "$output/deb" "$output/cpack.log"

[ -n "${PORTABLE:-}" ] || echo "no portable archive: PORTABLE names no build"
for portable in ${PORTABLE:-}; do
  deploy/portable/archive.sh "$portable" "$output"
  # shellcheck disable=SC1091 # made by the build (cmake/portable.cmake)
  . "$portable/archive.env"
  python3 deploy/release/sbom.py "$portable/quire" "$version" compiled-in-portable "$sysroot" ${cuda:+"cuda-cudart=$cuda"} > "$output/$name.spdx.json"
done
deploy/release/installers.sh "$output" "$version" "${URL:-file://$output}"

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
(cd "$output" && sha256sum -- *.tar.gz *.tgz *.deb *.spdx.json > SHA256SUMS)
echo "$output:"
ls -l "$output"
