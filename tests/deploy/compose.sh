#!/bin/sh
# The compose file against what it stands on: the files it mounts, the daemon's flags and defaults, the Dockerfile, Prometheus and
# Grafana. Exit 77: Python's YAML reader is absent. Usage: compose.sh QUIRE_BINARY
set -eu
here=$(realpath "$(dirname "$0")")
python3 -c 'import yaml' 2>/dev/null || { echo "skipped: Python has no YAML reader (Debian package python3-yaml)"; exit 77; }
exec python3 "$here/compose.py" "$(realpath "$1")" "$(realpath "$here/../..")"
