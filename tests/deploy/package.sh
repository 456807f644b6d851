#!/bin/sh
# Makes the Debian package of a build and looks into it: names, rights, configuration files, dependencies computed from the
# binary, and that the unpacked daemon reads its unpacked configuration and serves. Exit 77: dpkg-deb or dpkg-shlibdeps is absent.
# Usage: package.sh QUIRE_BINARY (in its build folder)
set -eu
build=$(dirname "$(realpath "$1")")
for tool in dpkg-deb dpkg-shlibdeps cpack; do
  command -v $tool >/dev/null || { echo "skipped: $tool is absent (Debian packages dpkg-dev, cmake)"; exit 77; }
done
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
server=
trap 'kill ${server:-} 2>/dev/null || true; rm -rf "$work"' EXIT
cpack --config "$build/CPackConfig.cmake" -B "$work" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
deb=$(ls "$work"/quire_*.deb)
dpkg-deb --info "$deb" > "$work/info"
dpkg-deb --contents "$deb" > "$work/contents"

expect() { # pattern, file
  grep -qE "$1" "$2" || { echo "absent: $1"; cat "$2"; exit 1; }
}
expect '^ Package: quire$' "$work/info"
expect '^ Depends: .*libc6 \(>= .*libssl3' "$work/info"
expect '^ Depends: .*libyaml-cpp' "$work/info"
expect '/etc/quire/quire.yaml' "$work/contents"
for path in ./usr/bin/quire ./lib/systemd/system/quire.service ./lib/systemd/system/quire.socket ./etc/quire/quire.yaml \
    ./usr/share/quire/quire-demo.gguf ./usr/share/man/man1/quire.1 ./usr/share/man/man1/quire-serve.1 ./usr/share/man/man1/quire-bench-serve.1 ./usr/share/doc/quire/copyright \
    ./usr/share/doc/quire/changelog.gz ./usr/share/bash-completion/completions/quire ./usr/share/zsh/vendor-completions/_quire \
    ./usr/share/fish/vendor_completions.d/quire.fish ./usr/share/doc/quire/reference.yaml; do
  expect "^-r[w-]xr?-?x?.*root/root .* $path\$|^-rw-r--r-- root/root .* $path\$" "$work/contents"
done
dpkg-deb --ctrl-tarfile "$deb" | tar -xO ./conffiles | grep -qx /etc/quire/quire.yaml
# Nothing that others may write, nothing beyond the binary that is compiled.
if grep -E '^.....w|^........w' "$work/contents" | grep -vE '^l'; then echo "writable by others"; exit 1; fi
size=$(stat -c %s "$deb")
[ "$size" -lt 40000000 ] || { echo "the package is $size bytes"; exit 1; }

dpkg-deb --extract "$deb" "$work/root"
# No link of the installed documents is dead.
(cd "$work/root/usr/share/doc/quire" && python3 "$here/../lint/documents.py" .) || { echo "dead links in the installed documents"; exit 1; }
# Nor one of the unit or the installed configuration.
grep -rohE '/usr/share/doc/quire/[A-Za-z0-9_./-]*[A-Za-z0-9]' "$work/root/lib/systemd" "$work/root/etc/quire" > "$work/pages"
[ "$(wc -l < "$work/pages")" -ge 2 ]
while read -r page; do
  [ -e "$work/root$page" ] || { echo "absent: $page"; exit 1; }
done < "$work/pages"
# The completion of bash, where bash is: commands at first, then flags.
completed() { # words...
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quire; printf "%s\n" "${COMPREPLY[@]}"' - \
    "$work/root/usr/share/bash-completion/completions/quire" "$@"
}
completed quire se | grep -qx serve
completed quire bench thr | grep -qx throughput
completed quire serve model.gguf --max-num-s | grep -qx -- --max-num-seqs
if command -v man >/dev/null; then
  for page in "$work"/root/usr/share/man/man1/*.1*; do
    warnings=$(man --warnings=w -E UTF-8 -l "$page" 2>&1 >/dev/null)
    [ -z "$warnings" ] || { echo "$page: $warnings"; exit 1; }
  done
fi
sed -i "s|/usr/share/quire|$work/root/usr/share/quire|" "$work/root/etc/quire/quire.yaml"
"$work/root/usr/bin/quire" serve --config "$work/root/etc/quire/quire.yaml" --check-config
"$work/root/usr/bin/quire" serve --config "$work/root/etc/quire/quire.yaml" --port 0 --kv-cache.num-blocks 256 2> "$work/served" &
server=$!
until grep -q 'is ready after' "$work/served"; do kill -0 $server || { cat "$work/served"; exit 1; }; done
url=$(sed -n 's/.*listening on \([0-9.:]*\).*/http:\/\/\1/p' "$work/served" | head -1)
"$work/root/usr/bin/quire" probe "$url/readyz"
kill $server
wait $server
server=
echo "the package has what it should: $size bytes"
