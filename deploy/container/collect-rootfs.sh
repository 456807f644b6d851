#!/bin/sh
# Makes the container's root file system: the binary, the shared libraries it loads, the authorities that it trusts for downloads, the
# demo model, a user without privileges. A volume at /var/cache/quire inherits that any user may write.
# Usage: collect-rootfs.sh BINARY FOLDER [SYSROOT]; with a root of another architecture the libraries are found there.
set -eu
binary=$1
root=$2
sysroot=${3:-}

mkdir -p "$root/usr/bin" "$root/usr/share/quire" "$root/etc/quire" "$root/tmp"
cp "$binary" "$root/usr/bin/quire"
cp deploy/demo-model/quire-demo.gguf "$root/usr/share/quire/"
cp config/quire.yaml "$root/etc/quire/"
mkdir -p "$root/var/cache/quire" "$root/etc/ssl/certs"
chmod 1777 "$root/tmp" "$root/var/cache/quire"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
printf 'quire:x:65532:65532::/:/usr/sbin/nologin\n' > "$root/etc/passwd"
printf 'quire:x:65532:\n' > "$root/etc/group"

if [ -z "$sysroot" ]; then
  ldd "$binary" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  exit 0
fi

# What a file names as needed, and what that needs: nothing of another architecture can be asked by running it.
needed() {
  readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
  readelf -l "$1" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p'
}
collect() {
  needed "$1" | while read -r name; do
    found=$(find -L "$sysroot/lib" "$sysroot/usr/lib" -name "$(basename "$name")" -type f | head -1)
    [ -n "$found" ] || { echo "$name, which $1 needs, is not in $sysroot" >&2; exit 1; }
    case $name in /*) to=$root$name ;; *) to=$root/usr/lib/aarch64-linux-gnu/$(basename "$name") ;; esac
    [ -e "$to" ] && continue
    mkdir -p "$(dirname "$to")"
    cp -L "$found" "$to"
    collect "$found"
  done
}
collect "$binary"
