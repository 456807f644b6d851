#!/usr/bin/env bash
# The figures of README.md's section on the server: a build folder, a folder for the models (1.3 GB).
set -euo pipefail
build=$1
folder=$2
quire=$build/quire
source=$(cd "$(dirname "$0")/../.." && pwd)
model=$folder/llama-3.2-1b-Q8_0.gguf
mkdir -p "$folder"
[ -f "$model" ] || "$quire" synth --shape llama-3.2-1b --type Q8_0 "$model" >&2

"$build/tests/bench_daemon" idle "$quire" "$source/deploy/demo-model/quire-demo.gguf" 10000
"$build/tests/bench_server" streams 1
"$build/tests/bench_server" overhead
cat "$model" > /dev/null  # into the page cache
"$build/tests/bench_daemon" ready "$quire" "$model"
cache=$(mktemp -d -p "$folder")
trap 'rm -rf "$cache"' EXIT
"$build/tests/bench_daemon" ready "$quire" "$model" --model.packed-cache "$cache"
