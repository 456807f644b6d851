// CpuBackend: every operation of Backend on the compute threads of this process, with the kernels of one ISA level.
// Engine thread only, except the loading calls.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace quire {

struct CpuBackendOptions {
  const KernelTable* kernels = nullptr;
  int threads = 1;  // the calling thread included
  bool pin = false;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace quire
