#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_attention_tile_kernels(std::vector<EmulatedKernel>& out) {
  visit_attention_tiles(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
