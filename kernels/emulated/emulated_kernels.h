// The kernels compiled by g++ for the emulator, a file for each family. Immutable facts; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/emulated/emulator.h"
#include "kernels/gpu/kernel_list.h"

namespace quire::gpu {

// Visitor of kernel_list.h that fills a table.
struct EmulatedKernelTable {
  std::vector<EmulatedKernel>& out;

  template <class K>
  void operator()(const char* name, Instance<K> /*instance*/) const {
    EmulatedKernel kernel;
    kernel.name = name;
    kernel.threads = K::kThreads;
    kernel.shared_bytes = K::kSharedBytes;
    kernel.args_bytes = sizeof(typename K::Args);
    kernel.run = [](EmulatedThread& thread, const void* args) {
      K::run(thread, *static_cast<const typename K::Args*>(args));
    };
    out.push_back(kernel);
  }
};

void add_linear_skinny_kernels(std::vector<EmulatedKernel>& out);
void add_linear_wide_kernels(std::vector<EmulatedKernel>& out);
void add_linear_half_kernels(std::vector<EmulatedKernel>& out);
void add_row_kernels(std::vector<EmulatedKernel>& out);
void add_attention_kernels(std::vector<EmulatedKernel>& out);
void add_draw_kernels(std::vector<EmulatedKernel>& out);
void add_recurrent_kernels(std::vector<EmulatedKernel>& out);
void add_attention_tile_kernels(std::vector<EmulatedKernel>& out);

}  // namespace quire::gpu
