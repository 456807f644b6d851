#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {

void add_attention_kernels(std::vector<EmulatedKernel>& out) {
  visit_attention(EmulatedKernelTable{out});
}

}  // namespace quire::gpu
