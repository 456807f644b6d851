#include "tests/kernels/random_data.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/formats/half.h"

namespace quire::test {
namespace {

constexpr float kMark = 12345.5f;

void put_f16(std::byte* at, float value) {
  const std::uint16_t half = float_to_f16(value);
  std::memcpy(at, &half, sizeof half);
}

void put_f32(std::byte* at, float value) {
  std::memcpy(at, &value, sizeof value);
}

// The d of IQ1_M is four bits on top of each of its last four words.
void put_iq1_m_scale(std::byte* words, float value) {
  const unsigned half = float_to_f16(value);
  for (unsigned i = 0; i < 4; ++i)
    words[2 * i + 1] = (words[2 * i + 1] & std::byte{15}) | static_cast<std::byte>(((half >> (4 * i)) & 15u) << 4);
}

void fix_int4_block(std::byte* block, float scale) {
  put_f32(block, scale);
  block[4] &= std::byte{15};
}

// Four blocks in a row have equal scales and zeros.
void fix_int4_group(std::byte* block, float scale) {
  fix_int4_block(block, scale);
  for (int i = 1; i < 4; ++i)
    std::memcpy(block + 21 * i, block, 5);
}

// No NaN.
void fix_float8(std::byte* block, float scale) {
  put_f32(block, scale);
  for (int i = 4; i < 36; ++i) {
    if ((block[i] & std::byte{127}) == std::byte{127}) block[i] ^= std::byte{1};
  }
}

// Overwrites the scales of a block of random bytes by sane ones.
void fix_scales(DType type, std::byte* block, std::mt19937& random) {
  std::uniform_real_distribution<float> scale(0.001f, 0.01f);
  switch (type) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ1_0:
    case DType::kQ2_0: return put_f16(block, scale(random));
    case DType::kQ4_1:
    case DType::kQ5_1: put_f16(block, scale(random)); return put_f16(block + 2, -8.0f * scale(random));
    case DType::kQ4_K:
    case DType::kQ5_K: put_f16(block, 0.1f * scale(random)); return put_f16(block + 2, 0.5f * scale(random));
    case DType::kQ6_K: return put_f16(block + 208, 0.05f * scale(random));
    case DType::kIQ4_NL:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S: return put_f16(block, 0.1f * scale(random));
    case DType::kIQ4_XS:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S: return put_f16(block, 0.01f * scale(random));
    case DType::kQ3_K: return put_f16(block + 108, 0.1f * scale(random));
    case DType::kQ2_K: put_f16(block + 80, 0.3f * scale(random)); return put_f16(block + 82, 0.3f * scale(random));
    case DType::kMXFP4: block[0] = static_cast<std::byte>(118 + random() % 5); return;
    case DType::kNVFP4:
      for (int i = 0; i < 4; ++i)
        block[i] = static_cast<std::byte>(random() % 33);  // subnormal ones too
      return;
    case DType::kIQ1_M: return put_iq1_m_scale(block + 48, 0.1f * scale(random));
    case DType::kTQ1_0: return put_f16(block + 52, scale(random));
    case DType::kTQ2_0: return put_f16(block + 64, scale(random));
    case DType::kI4G32: return fix_int4_block(block, scale(random));
    case DType::kI4G128: return fix_int4_group(block, scale(random));
    case DType::kF8: return fix_float8(block, 0.1f * scale(random));
    default: return;
  }
}

// Blocks of FP8 have the scale of the first of each four of their row.
void share_float8_scales(Weights& weights) {
  if (weights.type != DType::kF8) return;
  const auto blocks = static_cast<std::size_t>(weights.cols / 32);
  for (std::size_t row = 0; row < static_cast<std::size_t>(weights.rows); ++row) {
    for (std::size_t i = 0; i < blocks; ++i) {
      std::byte* first = weights.bytes.data() + (row * blocks + i / 4 * 4) * 36;
      std::memcpy(weights.bytes.data() + (row * blocks + i) * 36, first, 4);
    }
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
  share_float8_scales(out);
  return out;
}

OrderedParts::OrderedParts(std::uint32_t seed, DType second_type) : x(19, 96), ordered(19, 96) {
  std::mt19937 random(seed);
  first = random_weights(random, DType::kI4G32, 40, 96);
  second = random_weights(random, second_type, 24, 96);
  order.resize(96);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  parts = {first.source(), second.source(), first.source()};
  parts[0].order = order.data();
  x = random_matrix(random, 19, 96);
  for (std::int64_t row = 0; row < 19; ++row) {
    for (std::int64_t k = 0; k < 96; ++k)
      ordered.at(row, k) = x.at(row, order[static_cast<std::size_t>(k)]);
  }
}

}  // namespace quire::test
