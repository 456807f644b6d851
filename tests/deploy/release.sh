#!/bin/sh
# Makes a release of this tree, without an image, and looks into it: checksums, archive, package, SBOM. Exit 77: dpkg-deb or git is
# absent, or the tree is no clone. Usage: release.sh QUIRE_BINARY (in its build folder)
set -eu
build=$(dirname "$(realpath "$1")")
root=$(realpath "$(dirname "$0")/../..")
for tool in git dpkg-deb cpack python3; do
  command -v $tool >/dev/null || { echo "skipped: $tool is absent (Debian packages git, dpkg, cmake, python3)"; exit 77; }
done
git -C "$root" rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: the tree is no clone"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$("$1" --version | cut -d' ' -f2)
SNAPSHOT=1 NO_IMAGE=1 "$root/deploy/release/release.sh" "$build" "$work/release"
cd "$work/release"
sha256sum --check --strict --quiet SHA256SUMS
[ "$(ls | wc -l)" -ge 4 ]
tar -tzf "quire-$version.tar.gz" > "$work/files"
grep -qx "quire-$version/CMakeLists.txt" "$work/files"
dpkg-deb --field quire_*.deb Version | grep -qE "^$version-1~[a-z0-9.]+\$"
tar -tzf "quire-chart-$version.tgz" | grep -qx quire/Chart.yaml
grep -q "^## $version," NOTES.md
[ "$(grep -c '^## ' NOTES.md)" -eq 1 ]
python3 - "quire-$version.spdx.json" "$version" <<'P'
import json, re, sys
document = json.load(open(sys.argv[1]))
assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0"
assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
packages = {each["SPDXID"]: each for each in document["packages"]}
assert len(packages) == len(document["packages"]), "an id occurs twice"
names = {each["name"] for each in document["packages"]}
for expected in ("quire", "libc6", "libssl3", "libyaml-cpp0", "libjs-marked", "nlohmann-json3-dev"):  # the names of libraries go on
    assert any(name.startswith(expected) for name in names), expected
for relation in document["relationships"]:
    assert relation["spdxElementId"] in packages or relation["spdxElementId"] == "SPDXRef-DOCUMENT"
    assert relation["relatedSpdxElement"] in packages, relation
for each in document["packages"]:
    assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", each["SPDXID"]) and each["versionInfo"] and each["downloadLocation"], each
P
# Without SNAPSHOT a version that CHANGELOG.md calls not released is refused.
if grep -q "^## $version, not released yet" "$root/CHANGELOG.md" && "$root/deploy/release/release.sh" "$build" "$work/refused" 2> "$work/why"; then
  echo "a version that is not released was released"
  exit 1
fi
echo "the release has what it should"
