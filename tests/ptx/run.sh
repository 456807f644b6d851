#!/usr/bin/env bash
# run.sh PROGRAM FOLDER: runs those tests of PROGRAM (ptx_tests) that interpret the PTX that emit.sh put into FOLDER. Skipped by name
# where there is no nvcc.
set -euo pipefail
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "skipped: no nvcc, the PTX of the kernels was not interpreted"; exit 0; }
QUIRE_PTX=$2 "$1" --durations yes "[nvcc]"
