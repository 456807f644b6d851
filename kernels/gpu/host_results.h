// HostResults: pinned memory that a step's results are copied to for the host. Engine thread only. Invariant: memory
// that a copy may still write is not given up.
#pragma once

#include <array>

#include "kernels/backend.h"
#include "kernels/gpu/device.h"

namespace quire::gpu {

class HostResults {
 public:
  explicit HostResults(Device& device) : device_(device) {}
  HostResults(const HostResults&) = delete;
  HostResults& operator=(const HostResults&) = delete;
  ~HostResults();

  // As Backend::on_host.
  MatrixView copy(MatrixView x, HostResult result);

 private:
  struct Place {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  Device& device_;
  std::array<Place, 4> places_;
};

}  // namespace quire::gpu
