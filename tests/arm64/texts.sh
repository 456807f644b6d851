#!/bin/sh
# Compares the texts of build/arm64/quire under qemu with those of build/check (texts.test.mjs). Usage: texts.sh
set -eu
cd "$(dirname "$0")/../.."
QUIRE_BINARY=tests/arm64/quire.sh QUIRE_X86_BINARY=build/check/quire QUIRE_FUSED_BINARY=build/check/tests/quire-fused \
  QUIRE_MODEL=deploy/demo-model/quire-demo.gguf node --test tests/arm64/texts.test.mjs
