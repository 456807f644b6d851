#!/bin/sh
# Makes the portable archive of a build: archive.sh BUILD OUTPUT. Fails if the binary needs a library beside glibc's, or a glibc newer
# than 2.34, or if the archive is over 25 MB.
set -eu
build=$(realpath "$1")
output=$(realpath "$2")
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^project(quire VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=quire-$version-linux-$(uname -m)
binary=$build/quire

foreign=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libpthread|libdl|librt|ld-linux-x86-64|ld-linux-aarch64)\.so\.[0-9]+$' || true)
[ -z "$foreign" ] || { echo "the portable binary needs libraries beside glibc: $foreign" >&2; exit 1; }
newest=$(readelf --dyn-syms --wide "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" = GLIBC_2.34 ] ||
  { echo "the portable binary needs $newest: $(readelf --dyn-syms --wide "$binary" | grep "$newest" | awk '{ print $8 }' | tr '\n' ' ')" >&2; exit 1; }
root=$build/archive/$name
rm -rf "$build/archive"
mkdir -p "$root/licenses"
cp "$binary" deploy/portable/install.sh LICENSE README.md CHANGELOG.md "$root/"
cp deploy/demo-model/quire-demo.gguf config/quire.yaml "$root/"
cp -r "$build/pages/man" "$build/pages/completion" "$root/"
cp deploy/systemd/quire-user.service "$root/quire.service"
# The terms of all that is compiled in, as Debian's packages state them.
for package in $(deploy/packages.sh compiled-in-portable); do
  cp -L "/usr/share/doc/$package/copyright" "$root/licenses/$package.txt"
done
tar -C "$build/archive" --sort=name --owner=0 --group=0 --numeric-owner -czf "$output/$name.tar.gz" "$name"
size=$(stat -c %s "$output/$name.tar.gz")
[ "$size" -le 25000000 ] || { echo "the portable archive has $size bytes, more than 25 MB" >&2; exit 1; }
echo "$output/$name.tar.gz: $size bytes, the binary $(stat -c %s "$binary"), newest symbol version $newest"
