#!/bin/sh
# The commands of the guide, run as a reader would. Exit 77: curl, openssl or python3 is absent. Usage: guide.sh QUIRE_BINARY
set -eu
for tool in curl openssl python3; do
  command -v $tool >/dev/null || { echo "skipped: $tool is absent (Debian packages curl, openssl, python3)"; exit 77; }
done
here=$(realpath "$(dirname "$0")")
exec python3 "$here/guide.py" "$(realpath "$1")" "$(realpath "$here/../..")"
