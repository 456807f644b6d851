#!/usr/bin/env bash
# no_driver.sh QUIRE [MODEL]: a daemon built with CUDA on a machine without a driver: `auto` serves on the processor, `cuda` ends
# with one line and exit code 2. Skipped by name where there is a driver.
set -euo pipefail
cd "$(dirname "$0")/../.."
quire=$1
model=${2:-deploy/demo-model/quire-demo.gguf}
if ldconfig -p | grep -q 'libcuda\.so\.1'; then echo "skipped: this machine has an NVIDIA driver"; exit 0; fi

expect() { # expect TEXT COMMAND...: exit code 2 and one line
  local text=$1 status=0 said
  shift
  said=$("$@" 2>&1 > /dev/null) || status=$?
  if [[ $status != 2 || $(grep -c '^quire: ' <<< "$said") != 1 || $said != *"$text"* ]]; then
    echo "$*: $status, $said"
    exit 1
  fi
  echo "$said"
}
expect 'this machine has no NVIDIA driver' "$quire" serve "$model" --port 0 --device cuda
expect 'this machine has no NVIDIA driver' "$quire" serve "$model" --port 0 --device cuda:3
"$quire" inspect "$model" | grep "memory plan on cpu/"
echo "auto is the processor"
