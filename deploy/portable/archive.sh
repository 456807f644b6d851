#!/bin/sh
# Makes the portable archive of a build: archive.sh BUILD OUTPUT. Fails if the binary is another machine's, needs a library beside glibc's
# or a glibc newer than 2.34, or has symbols, or if the archive is over 25 MB, with CUDA's kernels over 40 MB.
set -eu
build=$(realpath "$1")
output=$(realpath "$2")
cd "$(dirname "$0")/../.."
# shellcheck disable=SC1091 # made by the build (cmake/portable.cmake)
. "$build/archive.env"
binary=$build/quire
limit=25
[ -z "$cuda" ] || limit=40
wrong() { echo "the portable binary $*" >&2; exit 1; }

case $(readelf -h "$binary" | sed -n 's/ *Machine: *//p') in
  *X86-64) machine=x86_64 ;;
  AArch64) machine=aarch64 ;;
  *) machine="an unknown machine" ;;
esac
case $name in *-linux-$machine*) ;; *) wrong "is for $machine, and the archive is $name" ;; esac
foreign=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libpthread|libdl|librt|ld-linux-x86-64|ld-linux-aarch64)\.so\.[0-9]+$' | tr '\n' ' ')
[ -z "$foreign" ] || wrong "needs libraries beside glibc: $foreign"
newest=$(readelf --dyn-syms --wide "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" = GLIBC_2.34 ] ||
  wrong "needs $newest: $(readelf --dyn-syms --wide "$binary" | grep "$newest" | awk '{ print $8 }' | tr '\n' ' ')"
! readelf --sections --wide "$binary" | grep -q '\.symtab' || wrong "is not stripped"

root=$build/archive/$name
rm -rf "$build/archive"
mkdir -p "$root/licenses"
cp "$binary" deploy/portable/install.sh LICENSE README.md CHANGELOG.md "$root/"
cp deploy/demo-model/quire-demo.gguf config/quire.yaml "$root/"
cp -r "$build/pages/man" "$build/pages/completion" "$root/"
cp deploy/systemd/quire-user.service "$root/quire.service"
# The terms of all that is compiled in, as Debian's packages state them: those of the target, of the page's scripts this machine's.
for package in $(deploy/packages.sh compiled-in-portable); do
  terms=/usr/share/doc/$package/copyright
  [ ! -e "$sysroot$terms" ] || terms=$sysroot$terms
  cp -L "$terms" "$root/licenses/$package.txt"
done
[ -z "$cuda" ] || cp "$cuda_license" "$root/licenses/cuda-cudart.txt"
tar -C "$build/archive" --sort=name --owner=0 --group=0 --numeric-owner -c "$name" | gzip -9n > "$output/$name.tar.gz"
size=$(stat -c %s "$output/$name.tar.gz")
[ "$size" -le ${limit}000000 ] || { echo "the portable archive $name has $size bytes, more than $limit MB" >&2; exit 1; }
echo "$output/$name.tar.gz: $size bytes, the binary $(stat -c %s "$binary"), newest symbol version $newest"
