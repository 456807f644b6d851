#!/usr/bin/env bash
# Reprints the part of README.md that needs no peer: operations against this machine's limits, then whole models.
# Arguments: the quire binary, a folder for the synthetic models (about 4 GB), further flags of both benchmarks.
set -euo pipefail
quire=$1
folder=$2
shift 2
mkdir -p "$folder"

"$quire" bench kernel "$@"

model() { # shape, type: the file, made where it is not there yet
  local file="$folder/$1-$2.gguf"
  [ -f "$file" ] || "$quire" synth --shape "$1" --type "$2" "$file" >&2
  echo "$file"
}

for type in BF16 Q8_0 Q4_0 Q4_K_M; do
  "$quire" bench throughput --model "$(model llama-3.2-1b $type)" --prompt 512 --output 32 --sequences 1 "$@"
done
"$quire" bench throughput --model "$(model qwen2.5-0.5b Q8_0)" --prompt 512 --output 64 --sequences 1,8,32 "$@"
