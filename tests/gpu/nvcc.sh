#!/usr/bin/env bash
# nvcc.sh FOLDER [ARCHITECTURE...]: compiles every kernel for the architectures (90a where none is named) and checks what
# ptxas says of it: no spills, and registers of all threads of a block within the 65536 of a multiprocessor. Writes a table
# to FOLDER/resources.txt. Shared memory is checked where kernels are listed (cuda_kernels.h).
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$1
shift
command -v nvcc > /dev/null || { echo "skipped: no nvcc, kernels were not compiled for a GPU"; exit 0; }
mkdir -p "$folder"
: > "$folder/resources.txt"
for arch in "${@:-90a}"; do
  for source in kernels/cuda/kernels_*.cu; do
    log=$folder/$(basename "$source").$arch.log
    nvcc -std=c++20 -I. --expt-relaxed-constexpr -fmad=false -arch="sm_$arch" -cubin -Xptxas -v \
      -o "$folder/kernels.cubin" "$source" > "$log" 2>&1 || { cat "$log"; exit 1; }
    c++filt < "$log" | awk -v arch="$arch" '
      /Compiling entry function/ { match($0, /kernel_entry<.*>\(/); name = substr($0, RSTART + 13, RLENGTH - 15) }
      /bytes spill stores/ { spills = $5 + $9 }
      /Used [0-9]+ registers/ { print arch, $5, spills, name }' >> "$folder/resources.txt"
  done
done
rm -f "$folder/kernels.cubin"
# Threads of a block, as the kernels state them; 128 and fewer always fit.
awk '{ threads = ($4 ~ /LinearWide|NormQuantise|MakeRows|LinearFloat|CopyBytes/) ? 256 : 128
       if ($3 > 0) { print "spills: " $0; bad = 1 }
       if ($2 * threads > 65536) { print "too many registers: " $0; bad = 1 }
       if ($2 > most) { most = $2; worst = $0 } }
     END { if (NR == 0) { print "no kernel was compiled"; exit 1 }
           print NR " kernels compiled; most registers: " worst; exit bad }' "$folder/resources.txt"
