#!/bin/sh
# The guide as a site, without a dead link. Exit 77: mkdocs or its theme is absent. Usage: site.sh QUIRE_BINARY (in its build folder)
set -eu
build=$(dirname "$(realpath "$1")")
python3 -c 'import mkdocs, material' 2>/dev/null || { echo "skipped: mkdocs is absent (Debian packages mkdocs, mkdocs-material)"; exit 77; }
exec python3 "$(dirname "$0")/../../deploy/site/build.py" "$build/docs"
