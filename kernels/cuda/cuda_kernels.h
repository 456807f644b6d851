// The entry that nvcc compiles for each kernel, and how a family's file lists them. Immutable facts; any thread.
#pragma once

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/cuda_thread.h"
#include "kernels/gpu/kernel_list.h"

namespace quire::gpu {

// Returns whether K itself waits for the kernels before it, after its independent work.
template <class K>
constexpr bool begins_early() {
  if constexpr (requires { K::kBeginsEarly; }) return K::kBeginsEarly;
  return false;
}

// Blocks that a multiprocessor's registers should hold: K::kBlocks if the kernel has one.
template <class K>
constexpr int least_blocks() {
  if constexpr (requires { K::kBlocks; }) return K::kBlocks;
  return 1;
}

template <class K>
__global__ void __launch_bounds__(K::kThreads, least_blocks<K>())
    kernel_entry(const __grid_constant__ typename K::Args args) {
  extern __shared__ __align__(16) std::byte shared[];
  CudaThread thread(shared);
  thread.let_next_begin();
  if constexpr (!begins_early<K>()) thread.wait_for_kernels();
  K::run(thread, args);
}

// Visitor of kernel_list.h that fills a table.
struct CudaKernelTable {
  std::vector<CudaKernel>& out;

  template <class K>
  void operator()(const char* name, Instance<K> /*instance*/) const {
    static_assert(K::kSharedBytes <= 99 << 10, "more shared memory than a block may have on sm_86, sm_89 and sm_120");
    CudaKernel kernel;
    kernel.name = name;
    kernel.threads = K::kThreads;
    kernel.shared_bytes = K::kSharedBytes;
    kernel.args_bytes = sizeof(typename K::Args);
    kernel.function = reinterpret_cast<const void*>(&kernel_entry<K>);
    out.push_back(kernel);
  }
};

}  // namespace quire::gpu
