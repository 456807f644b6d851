#include "core/model/formats/row_makers.h"

#include <array>
#include <cstring>

#include "kernels/formats/half.h"

namespace quire {

namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kScaleCols = 128;  // columns that share an FP8 scale when packed

// Packs elements 0 to 15 in the low, 16 to 31 in the high nibbles of sixteen bytes.
template <class Code>
void put_nibbles(std::byte* out, const Code& code_of) {
  for (std::int64_t i = 0; i < kBlock / 2; ++i)
    out[i] = static_cast<std::byte>(code_of(i) | code_of(i + kBlock / 2) << 4);
}

class IntRows final : public RowMaker {
 public:
  explicit IntRows(const IntTensors& tensors) : tensors_(tensors) {}

  void make_row(std::int64_t row, std::byte* out) const override {
    for (std::int64_t begin = 0; begin < tensors_.cols; begin += kBlock)
      out = tensors_.quants.bits == 8 ? put_bytes(row, begin, out) : put_small(row, begin, out);
  }

 private:
  std::byte* put_small(std::int64_t row, std::int64_t begin, std::byte* out) const {
    const std::int64_t group = begin / tensors_.group_size;
    const float scale = tensors_.scale_of(row, group);
    std::memcpy(out, &scale, sizeof scale);
    out[4] = static_cast<std::byte>(tensors_.zero_of(row, group));
    put_nibbles(out + 5, [&](std::int64_t i) { return quant_of(row, begin + i); });
    return out + 21;
  }

  std::byte* put_bytes(std::int64_t row, std::int64_t begin, std::byte* out) const {
    const std::uint16_t scale = float_to_f16(tensors_.scale_of(row, begin / tensors_.group_size));
    std::memcpy(out, &scale, sizeof scale);
    for (std::int64_t i = 0; i < kBlock; ++i)
      out[2 + i] = static_cast<std::byte>(quant_of(row, begin + i) ^ 0x80U);
    return out + 2 + kBlock;
  }

  unsigned quant_of(std::int64_t row, std::int64_t place) const {
    const std::int64_t col = tensors_.order.empty() ? place : tensors_.order[static_cast<std::size_t>(place)];
    return tensors_.by_input ? tensors_.quants.at(col, row) : tensors_.quants.at(row, col);
  }

  IntTensors tensors_;
};

class Float8Rows final : public RowMaker {
 public:
  explicit Float8Rows(const Float8Tensors& tensors) : tensors_(tensors) {
    blocks_across_ = (tensors.cols + tensors.block_cols - 1) / tensors.block_cols;
    blocks_down_ = (tensors.rows + tensors.block_rows - 1) / tensors.block_rows;
  }

  void make_row(std::int64_t row, std::byte* out) const override {
    const std::byte* from = tensors_.data + row * tensors_.cols;
    const std::int64_t down = row / tensors_.rows * blocks_down_ + row % tensors_.rows / tensors_.block_rows;
    for (std::int64_t begin = 0; begin < tensors_.cols; begin += kBlock, from += kBlock, out += 4 + kBlock) {
      const float scale = tensors_.scales[down * blocks_across_ + begin / tensors_.block_cols];
      std::memcpy(out, &scale, sizeof scale);
      std::memcpy(out + 4, from, kBlock);
    }
  }

 private:
  Float8Tensors tensors_;
  std::int64_t blocks_across_;
  std::int64_t blocks_down_;
};

class Mxfp4Rows final : public RowMaker {
 public:
  Mxfp4Rows(std::int64_t cols, const std::byte* blocks, const std::byte* scales)
      : groups_(cols / kBlock), blocks_(blocks), scales_(scales) {}

  void make_row(std::int64_t row, std::byte* out) const override {
    for (std::int64_t group = row * groups_; group < (row + 1) * groups_; ++group, out += 17) {
      out[0] = scales_[group];
      const std::byte* pairs = blocks_ + 16 * group;
      put_nibbles(out + 1,
                  [&](std::int64_t i) { return std::to_integer<unsigned>(pairs[i / 2]) >> (i % 2 * 4) & 15u; });
    }
  }

 private:
  std::int64_t groups_;
  const std::byte* blocks_;
  const std::byte* scales_;
};

class Nvfp4Rows final : public RowMaker {
 public:
  Nvfp4Rows(std::int64_t cols, const std::byte* pairs, const std::byte* scales)
      : cols_(cols), pairs_(pairs), scales_(scales) {}

  // Blocks of four scales and 64 elements; of each 16 elements, the first eight are in the low nibbles.
  void make_row(std::int64_t row, std::byte* out) const override {
    const std::byte* pairs = pairs_ + row * cols_ / 2;
    const std::byte* scales = scales_ + row * cols_ / 16;
    const auto code_at = [&](std::int64_t col) {
      return std::to_integer<unsigned>(pairs[col / 2]) >> (col % 2 * 4) & 15U;
    };
    for (std::int64_t begin = 0; begin < cols_; begin += 64) {
      std::memcpy(out, scales + begin / 16, 4);
      out += 4;
      for (std::int64_t sub = begin; sub < begin + 64; sub += 16) {
        for (std::int64_t i = sub; i < sub + 8; ++i)
          *out++ = static_cast<std::byte>(code_at(i) | code_at(i + 8) << 4);
      }
    }
  }

 private:
  std::int64_t cols_;
  const std::byte* pairs_;
  const std::byte* scales_;
};

class StackedRows final : public RowMaker {
 public:
  explicit StackedRows(const StackedTensors& tensors) : tensors_(tensors) {}

  void make_row(std::int64_t row, std::byte* out) const override {
    const std::int64_t matrix = row / tensors_.rows;
    std::int64_t place = row % tensors_.rows;
    const std::int64_t half = tensors_.rows / 2;
    if (tensors_.is_paired) place = place < half ? 2 * place : 2 * (place - half) + 1;
    const std::int64_t stored = matrix * tensors_.rows + place;
    if (tensors_.maker != nullptr) return tensors_.maker->make_row(stored, out);
    const std::size_t row_bytes = dtype_bytes(tensors_.type, tensors_.cols);
    if (!tensors_.is_transposed) {
      std::memcpy(out, tensors_.data + static_cast<std::size_t>(stored) * row_bytes, row_bytes);
      return;
    }
    const std::size_t bytes = dtype_info(tensors_.type).block_bytes;
    for (std::int64_t col = 0; col < tensors_.cols; ++col, out += bytes) {
      const std::int64_t element = (matrix * tensors_.cols + col) * tensors_.rows + place;
      std::memcpy(out, tensors_.data + static_cast<std::size_t>(element) * bytes, bytes);
    }
  }

 private:
  StackedTensors tensors_;
};

}  // namespace

float FloatView::operator[](std::int64_t index) const {
  float value;
  dequantize(type, data + index * static_cast<std::int64_t>(dtype_info(type).block_bytes), 1, &value);
  return value;
}

unsigned PackedInts::at(std::int64_t stream, std::int64_t index) const {
  const auto word = [&](std::int64_t number) {
    std::uint32_t value;
    std::memcpy(&value, words + 4 * (stream * stream_stride + number * word_stride), sizeof value);
    return value;
  };
  if (is_awq) index = index / 8 * 8 + index % 8 / 2 + index % 2 * 4;
  const std::int64_t first = index * bits;
  const auto shift = static_cast<int>(first % 32);
  std::uint64_t both = word(first / 32);
  if (shift + bits > 32) both |= static_cast<std::uint64_t>(word(first / 32 + 1)) << 32;
  const auto value = static_cast<unsigned>(both >> shift) & ((1U << bits) - 1U);
  return is_signed ? value ^ (1U << (bits - 1)) : value;
}

float IntTensors::scale_of(std::int64_t row, std::int64_t group) const {
  if (has_one_scale) return scales[0];
  return scales[scales_by_group ? group * rows + row : row * num_groups() + group];
}

unsigned IntTensors::zero_of(std::int64_t row, std::int64_t group) const {
  if (zeros.words == nullptr) return 1U << (quants.bits - 1);
  const unsigned stored = zeros.at(group, row);
  return zeros_less_one ? (stored + 1) & ((1U << quants.bits) - 1U) : stored;
}

DType int_type(const IntTensors& tensors) {
  if (tensors.quants.bits == 8) return DType::kQ8_0;
  const bool is_wide = tensors.group_size % kScaleCols == 0 && tensors.cols % kScaleCols == 0;
  return is_wide ? DType::kI4G128 : DType::kI4G32;
}

std::unique_ptr<const RowMaker> make_int_rows(const IntTensors& tensors) {
  return std::make_unique<IntRows>(tensors);
}

std::unique_ptr<const RowMaker> make_nvfp4_rows(std::int64_t cols, const std::byte* pairs, const std::byte* scales) {
  return std::make_unique<Nvfp4Rows>(cols, pairs, scales);
}

std::unique_ptr<const RowMaker> make_float8_rows(const Float8Tensors& tensors) {
  return std::make_unique<Float8Rows>(tensors);
}

std::unique_ptr<const RowMaker> make_mxfp4_rows(std::int64_t cols, const std::byte* blocks, const std::byte* scales) {
  return std::make_unique<Mxfp4Rows>(cols, blocks, scales);
}

std::unique_ptr<const RowMaker> make_stacked_rows(const StackedTensors& tensors) {
  return std::make_unique<StackedRows>(tensors);
}

}  // namespace quire
