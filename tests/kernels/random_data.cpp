#include "tests/kernels/random_data.h"

#include <cstring>

#include "kernels/half.h"

namespace quire::test {
namespace {

constexpr float kMark = 12345.5f;

void put_f16(std::byte* at, float value) {
  const std::uint16_t half = float_to_f16(value);
  std::memcpy(at, &half, sizeof half);
}

// Overwrites the f16 scales of a block of random bytes by sane ones.
void fix_scales(DType type, std::byte* block, std::mt19937& random) {
  std::uniform_real_distribution<float> scale(0.001f, 0.01f);
  switch (type) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0: return put_f16(block, scale(random));
    case DType::kQ4_1:
    case DType::kQ5_1: put_f16(block, scale(random)); return put_f16(block + 2, -8.0f * scale(random));
    case DType::kQ4_K:
    case DType::kQ5_K: put_f16(block, 0.1f * scale(random)); return put_f16(block + 2, 0.5f * scale(random));
    case DType::kQ6_K: return put_f16(block + 208, 0.05f * scale(random));
    default: return;
  }
}

}  // namespace

Matrix::Matrix(std::int64_t num_rows, std::int64_t num_cols, std::int64_t padding)
    : rows(num_rows),
      cols(num_cols),
      stride(num_cols + padding),
      data(static_cast<std::size_t>(num_rows * (num_cols + padding)), kMark) {}

MatrixView Matrix::view() {
  return {data.data(), rows, cols, stride};
}

MatrixView Matrix::rows_from(std::int64_t first, std::int64_t count) {
  return {data.data() + first * stride, count, cols, stride};
}

float& Matrix::at(std::int64_t row, std::int64_t col) {
  return data[static_cast<std::size_t>(row * stride + col)];
}

bool Matrix::padding_untouched() const {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = cols; col < stride; ++col) {
      if (data[static_cast<std::size_t>(row * stride + col)] != kMark) return false;
    }
  }
  return true;
}

bool same_rows(const Matrix& a, std::int64_t row_a, const Matrix& b, std::int64_t row_b, std::int64_t count) {
  for (std::int64_t row = 0; row < count; ++row) {
    const float* left = a.data.data() + (row_a + row) * a.stride;
    const float* right = b.data.data() + (row_b + row) * b.stride;
    if (std::memcmp(left, right, static_cast<std::size_t>(a.cols) * sizeof(float)) != 0) return false;
  }
  return true;
}

Matrix random_matrix(std::mt19937& random, std::int64_t rows, std::int64_t cols, float deviation) {
  Matrix out(rows, cols);
  std::normal_distribution<float> normal(0.0f, deviation);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col)
      out.at(row, col) = normal(random);
  }
  return out;
}

std::vector<float> random_floats(std::mt19937& random, std::int64_t count, float deviation) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::normal_distribution<float> normal(0.0f, deviation);
  for (float& x : out)
    x = normal(random);
  return out;
}

std::vector<float> Weights::decoded() const {
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  dequantize(type, bytes.data(), rows * cols, out.data());
  return out;
}

Weights random_weights(std::mt19937& random, DType type, std::int64_t rows, std::int64_t cols) {
  Weights out{type, rows, cols, std::vector<std::byte>(dtype_bytes(type, rows * cols))};
  const DTypeInfo& info = dtype_info(type);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (std::size_t at = 0; at < out.bytes.size(); at += info.block_bytes) {
    std::byte* block = out.bytes.data() + at;
    const float value = normal(random);
    const std::uint16_t half = type == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
    if (info.block_size > 1) {
      for (std::size_t i = 0; i < info.block_bytes; ++i)
        block[i] = static_cast<std::byte>(random() & 0xff);
      fix_scales(type, block, random);
    } else if (type == DType::kF32) {
      std::memcpy(block, &value, sizeof value);
    } else {
      std::memcpy(block, &half, sizeof half);
    }
  }
  return out;
}

}  // namespace quire::test
