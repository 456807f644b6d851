// Random inputs of the kernel tests: floats, matrices and weights of every type, the same on every run. One thread at a
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "kernels/backend.h"

namespace quire::test {

inline constexpr DType kAllTypes[] = {
    DType::kF32,   DType::kF16,    DType::kBF16,  DType::kQ8_0,    DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,
    DType::kQ5_1,  DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K,    DType::kIQ4_NL, DType::kIQ4_XS,  DType::kQ3_K,
    DType::kQ2_K,  DType::kMXFP4,  DType::kNVFP4, DType::kIQ3_XXS, DType::kIQ3_S,  DType::kIQ2_XXS, DType::kIQ2_XS,
    DType::kIQ2_S, DType::kIQ1_S,  DType::kIQ1_M, DType::kTQ1_0,   DType::kTQ2_0,  DType::kQ1_0,    DType::kQ2_0,
    DType::kI4G32, DType::kI4G128, DType::kF8};
static_assert(std::size(kAllTypes) == kNumWeightTypes);

// A type for each kernel; the others share the packed form of one of these.
inline constexpr DType kKernelTypes[] = {DType::kF32,   DType::kF16,    DType::kBF16,    DType::kQ8_0,   DType::kQ4_0,
                                         DType::kQ4_1,  DType::kQ5_0,   DType::kQ5_1,    DType::kQ4_K,   DType::kQ5_K,
                                         DType::kQ6_K,  DType::kIQ4_NL, DType::kIQ4_XS,  DType::kQ3_K,   DType::kQ2_K,
                                         DType::kMXFP4, DType::kNVFP4,  DType::kIQ3_XXS, DType::kIQ3_S,  DType::kIQ2_S,
                                         DType::kIQ1_M, DType::kQ2_0,   DType::kI4G32,   DType::kI4G128, DType::kF8};

// Row-major [rows, cols] with `padding` unused floats behind each row, preset to a mark that no operation may
// overwrite.
struct Matrix {
  Matrix(std::int64_t rows, std::int64_t cols, std::int64_t padding = 3);
  MatrixView view();
  MatrixView rows_from(std::int64_t first, std::int64_t count);
  float& at(std::int64_t row, std::int64_t col);
  bool padding_untouched() const;

  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
  std::vector<float> data;
};

// Returns whether `count` rows of a and of b, from `row_a` and `row_b` on, have the same bits, ignoring padding.
bool same_rows(const Matrix& a, std::int64_t row_a, const Matrix& b, std::int64_t row_b, std::int64_t count);

Matrix random_matrix(std::mt19937& random, std::int64_t rows, std::int64_t cols, float deviation = 1.0f);
std::vector<float> random_floats(std::mt19937& random, std::int64_t count, float deviation = 1.0f);

// Random quants with finite scales of about 0.01 to 0.1 per weight.
struct Weights {
  WeightSource source() const { return {type, rows, cols, bytes.data()}; }
  std::vector<float> decoded() const;  // [rows * cols]

  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::byte> bytes;
};

Weights random_weights(std::mt19937& random, DType type, std::int64_t rows, std::int64_t cols);

// Three parts of one product over 96 features: 40 outputs with their inputs in an order of their own, 24 of another
// type, the first 40 again in the plain order. ordered: x as the first part takes it.
struct OrderedParts {
  OrderedParts(std::uint32_t seed, DType second_type);
  OrderedParts(const OrderedParts&) = delete;
  OrderedParts& operator=(const OrderedParts&) = delete;

  Weights first;
  Weights second;
  std::vector<std::int32_t> order;
  std::array<WeightSource, 3> parts;
  Matrix x;
  Matrix ordered;
};

}  // namespace quire::test
