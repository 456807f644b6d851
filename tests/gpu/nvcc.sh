#!/usr/bin/env bash
# nvcc.sh PROGRAM FOLDER ARCHITECTURE...: compiles every kernel for the architectures and has PROGRAM (ptx_tests) check what ptxas says
# of them: no spills, and registers and shared memory for the blocks that a multiprocessor is to hold (tests/ptx/resources_test.cpp).
# Writes FOLDER/resources.txt. Skipped by name where there is no nvcc.
set -euo pipefail
program=$1
folder=$2
shift 2
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "skipped: no nvcc, kernels were not compiled for a GPU"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"

compile() { # compile ARCHITECTURE SOURCE
  local name
  name=$(basename "$2" .cu).$1
  nvcc -std=c++20 -I. --expt-relaxed-constexpr -fmad=false -arch="sm_$1" -cubin -Xptxas -v -o "$folder/$name.cubin" "$2" \
    > "$folder/$name.log" 2>&1 || { cat "$folder/$name.log"; return 1; }
  # Architecture, registers of a thread, bytes of spills, function.
  awk -v arch="$1" '
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2] }
    /bytes spill stores/ { spills = $5 + $9 }
    /Used [0-9]+ registers/ { print arch, $5, spills, name }' "$folder/$name.log" > "$folder/$name.txt"
}
export -f compile
export folder
for arch in "$@"; do
  for source in kernels/cuda/kernels_*.cu; do echo "$arch $source"; done
done | xargs -P 2 -L 1 bash -c 'compile "$0" "$1"'
cat "$folder"/*.txt > "$folder/resources.txt"
QUIRE_RESOURCES=$folder/resources.txt "$program" --use-colour no "[resources]"
