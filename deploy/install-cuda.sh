#!/bin/sh
# Installs nvcc of CUDA 13 and its runtime from NVIDIA's packages for Debian 12, unless nvcc is there. CUDA=13-0 and CUDA_REPOSITORY=URL choose
# others.
set -eu
cd "$(dirname "$0")"
! PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null || exit 0
version=${CUDA:-13-0}
repository=${CUDA_REPOSITORY:-https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64}
./install-packages.sh ca-certificates curl
keyring=$(mktemp --suffix=.deb)
curl -fsSLo "$keyring" "$repository/cuda-keyring_1.1-1_all.deb"
dpkg -i "$keyring"
rm "$keyring"
./install-packages.sh "cuda-nvcc-$version" "cuda-cudart-dev-$version"
