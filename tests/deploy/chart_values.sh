#!/bin/sh
# The schema of the chart's values: what it takes and refuses, and that it knows all values and no others; the alerts as the
# Prometheus operator takes them. Exit 77: Python's jsonschema or YAML reader is absent.
set -eu
here=$(realpath "$(dirname "$0")")
python3 -c 'import jsonschema, yaml' 2>/dev/null ||
  { echo "skipped: Python has no jsonschema or YAML reader (Debian packages python3-jsonschema, python3-yaml)"; exit 77; }
exec python3 "$here/chart_values.py" "$(realpath "$here/../..")"
