// A matrix in a backend's memory, as the cases of gpu_check have theirs. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/random_data.h"

namespace quire::test {

struct Placed {
  Placed(Backend& backend, std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
    std::mt19937 random(seed);
    buffer = backend.upload(random_floats(random, rows * cols));
    view = {buffer->data(), rows, cols, cols};
  }
  Placed(Backend& backend, std::int64_t rows, std::int64_t cols)
      : buffer(backend.upload(std::vector<float>(static_cast<std::size_t>(rows * cols), 0.5f))),
        view{buffer->data(), rows, cols, cols} {}

  std::unique_ptr<Buffer> buffer;
  MatrixView view;
};

inline std::vector<float> read(Backend& backend, MatrixView x) {
  const MatrixView copy = backend.on_host(x, HostResult::kLogits);
  backend.synchronize();
  return {copy.data, copy.data + copy.rows * copy.cols};
}

}  // namespace quire::test
