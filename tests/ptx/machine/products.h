// A product of random weights and rows on a device, by the kernel that is asked for. One thread at a time.
#pragma once

#include "kernels/gpu/device/device.h"
#include "tests/kernels/random_data.h"

namespace quire::test {

struct ProductShape {
  DType type = DType::kQ8_0;
  std::int64_t rows = 1;
  std::int64_t outputs = 16;
  std::int64_t depth = 256;
  bool is_wide = false;  // quantised types: linear_wide, else linear_skinny
};

// The weights' bytes in the device's memory.
std::size_t run_product(gpu::Device& device, const ProductShape& shape);

}  // namespace quire::test
