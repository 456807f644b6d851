// Support for tests of the AMX level's machine code: whether it runs here, and on which tiles. One thread at a time.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <optional>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/levels/amx_trap.h"

#define REQUIRE_AMX_VECTORS()                                                                       \
  if (!quire::test::has_amx_vectors()) {                                                            \
    WARN("skipped: the vector part of the AMX level needs a processor with AVX-512 BF16 and VBMI"); \
    return;                                                                                         \
  }

#define REQUIRE_TRAPPED_TILES()                                                                   \
  if (quire::test::has_amx_tiles()) {                                                             \
    WARN("skipped: this processor executes tile instructions itself, where nothing counts them"); \
    return;                                                                                       \
  }

namespace quire::test {

// Traps tile instructions if the processor has none.
struct AmxTiles {
  std::optional<AmxTrap> trap;
  AmxTiles() {
    if (!has_amx_tiles()) trap.emplace();
  }
};

inline std::unique_ptr<Backend> backend_over(const KernelTable& kernels, int threads) {
  return make_cpu_backend({.kernels = &kernels, .threads = threads, .pin = false});
}

}  // namespace quire::test
