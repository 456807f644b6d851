// Reads the .npy files of the operator goldens (little-endian f4, i8, and u2 holding bf16). One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tests/kernels/random_data.h"

namespace quire::test {

struct Array {
  std::int64_t columns() const { return shape.back(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns(); }
  std::vector<float> floats() const { return {values.begin(), values.end()}; }
  Matrix matrix() const;  // [rows, columns]

  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

// Fails the running test where the file is not such an array.
Array read_npy(const std::filesystem::path& path);

}  // namespace quire::test
