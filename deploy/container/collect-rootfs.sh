#!/bin/sh
# Makes the container's root file system: the binary, the shared libraries it loads, the demo model, a user without privileges.
set -eu
binary=$1
root=$2

mkdir -p "$root/usr/bin" "$root/usr/share/quire" "$root/etc/quire" "$root/tmp"
cp "$binary" "$root/usr/bin/quire"
cp deploy/demo-model/quire-demo.gguf "$root/usr/share/quire/"
cp config/quire.yaml "$root/etc/quire/"
chmod 1777 "$root/tmp"
printf 'quire:x:65532:65532::/:/usr/sbin/nologin\n' > "$root/etc/passwd"
printf 'quire:x:65532:\n' > "$root/etc/group"

ldd "$binary" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
