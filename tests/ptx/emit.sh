#!/usr/bin/env bash
# emit.sh FOLDER: the PTX of every kernel, by nvcc, into FOLDER. Skipped by name where there is no nvcc.
set -euo pipefail
folder=$1
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "skipped: no nvcc, no PTX of the kernels was emitted"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
export folder
emit() { nvcc -std=c++20 -I. --expt-relaxed-constexpr -fmad=false -arch=compute_80 -ptx -o "$folder/$(basename "$1" .cu).ptx" "$1"; }
export -f emit
printf '%s\n' kernels/cuda/kernels_*.cu | xargs -P 2 -n 1 bash -c 'emit "$0"'
