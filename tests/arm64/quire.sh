#!/bin/sh
# Runs the daemon built for arm64 under qemu, with every instruction that its levels may use; arguments as for quire.
root=$(dirname "$(realpath "$0")")/../..
exec qemu-aarch64-static -cpu max -L "$root/build/arm64-root" "$root/build/arm64/quire" "$@"
