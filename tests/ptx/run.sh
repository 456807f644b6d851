#!/usr/bin/env bash
# run.sh PROGRAM FOLDER: emits the PTX of every kernel with nvcc into FOLDER and runs those tests of PROGRAM (ptx_tests) that
# interpret it. Skipped by name where there is no nvcc.
set -euo pipefail
program=$1
folder=$2
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "skipped: no nvcc, the PTX of the kernels was not interpreted"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
for source in kernels/cuda/kernels_*.cu; do
  nvcc -std=c++20 -I. --expt-relaxed-constexpr -fmad=false -arch=compute_80 -ptx -o "$folder/$(basename "$source" .cu).ptx" "$source"
done
QUIRE_PTX=$folder "$program" --use-colour no --durations yes "[nvcc]"
