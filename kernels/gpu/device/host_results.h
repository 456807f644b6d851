// HostResults: pinned memory that a step's results are copied to for the host. Engine thread only. There are two sets
// of it, for two steps in flight. Invariant: memory that a copy may still write is not given up.
#pragma once

#include <array>

#include "kernels/backend.h"
#include "kernels/gpu/device/device.h"

namespace quire::gpu {

class HostResults {
 public:
  explicit HostResults(Device& device) : device_(device) {}
  HostResults(const HostResults&) = delete;
  HostResults& operator=(const HostResults&) = delete;
  ~HostResults();

  // Implements Backend::on_host.
  MatrixView copy(MatrixView x, HostResult result);
  // Results go to set 0 or 1 from here on.
  void begin(std::size_t set) { current_ = set; }

 private:
  struct Place {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  Device& device_;
  std::array<std::array<Place, 4>, 2> places_;  // indexed by set and result
  std::size_t current_ = 0;
};

}  // namespace quire::gpu
