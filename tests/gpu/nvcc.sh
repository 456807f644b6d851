#!/usr/bin/env bash
# nvcc.sh PROGRAM PTX FOLDER ARCHITECTURE...: has ptxas assemble the kernels' PTX, which tests/ptx/emit.sh put into PTX, for the
# architectures and PROGRAM (ptx_tests) check what it says of them: no spills, and registers and shared memory for the blocks that a
# multiprocessor is to hold (tests/ptx/resources_test.cpp). Writes FOLDER/resources.txt. Skipped by name where there is no nvcc.
set -euo pipefail
program=$1
ptx=$2
folder=$3
shift 3
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "skipped: no nvcc, kernels were not assembled for a GPU"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"

assemble() { # assemble ARCHITECTURE PTX
  local name
  name=$(basename "$2" .ptx).$1
  ptxas -v -arch="sm_$1" -o "$folder/$name.cubin" "$2" > "$folder/$name.log" 2>&1 || { cat "$folder/$name.log"; return 1; }
  # Architecture, registers of a thread, bytes of spills, function.
  awk -v arch="$1" '
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2] }
    /bytes spill stores/ { spills = $5 + $9 }
    /Used [0-9]+ registers/ { print arch, $5, spills, name }' "$folder/$name.log" > "$folder/$name.txt"
}
export -f assemble
export folder
for arch in "$@"; do
  for each in "$ptx"/*.ptx; do echo "$arch $each"; done
done | xargs -P 2 -L 1 bash -c 'assemble "$0" "$1"'
cat "$folder"/*.txt > "$folder/resources.txt"
QUIRE_RESOURCES=$folder/resources.txt "$program" "[resources]"
