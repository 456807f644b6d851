#include "kernels/gpu/device/host_results.h"

namespace quire::gpu {

HostResults::~HostResults() {
  for (const auto& set : places_) {
    for (const Place& place : set)
      device_.free_host(place.data);
  }
}

MatrixView HostResults::copy(MatrixView x, HostResult result) {
  Place& place = places_[current_].at(static_cast<std::size_t>(result));
  const MatrixView none{.data = reinterpret_cast<float*>(place.data), .rows = 0, .cols = x.cols, .stride = x.cols};
  if (x.rows == 0 || x.cols == 0) return none;
  const std::size_t row_bytes = static_cast<std::size_t>(x.cols) * sizeof(float);
  const std::size_t bytes = static_cast<std::size_t>(x.rows) * row_bytes;
  if (place.bytes < bytes) {
    device_.synchronize();
    device_.free_host(place.data);
    place = {};
    place = {device_.allocate_host(bytes), bytes};
  }
  const auto enqueue = [&](std::int64_t row, std::size_t size) {
    std::byte* const to = place.data + static_cast<std::size_t>(row) * row_bytes;
    device_.copy_to_host(to, reinterpret_cast<const std::byte*>(x.data + row * x.stride), size, Stream::kCompute);
  };
  if (x.stride == x.cols) {
    enqueue(0, bytes);
  } else {
    for (std::int64_t row = 0; row < x.rows; ++row)
      enqueue(row, row_bytes);
  }
  return {.data = reinterpret_cast<float*>(place.data), .rows = x.rows, .cols = x.cols, .stride = x.cols};
}

}  // namespace quire::gpu
