#include "core/model/formats/row_makers.h"

#include <array>
#include <cstring>

#include "kernels/half.h"

namespace quire {

namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::uint8_t kMiddle = 8;       // the zero of symmetric quants
constexpr std::int64_t kScaleCols = 128;  // that share a scale of FP8 when packed

unsigned nibble_of(const std::byte* words, std::int64_t word, std::int64_t place) {
  std::uint32_t value;
  std::memcpy(&value, words + 4 * word, sizeof value);
  return (value >> (4 * place)) & 15u;
}

// AWQ: output 2i of eight is nibble i, output 2i + 1 is nibble 4 + i.
std::int64_t awq_place(std::int64_t output) {
  return output % 8 / 2 + output % 2 * 4;
}

// Elements 0 to 15 in the low, 16 to 31 in the high nibbles of sixteen bytes.
template <class Code>
void put_nibbles(std::byte* out, const Code& code_of) {
  for (std::int64_t i = 0; i < kBlock / 2; ++i)
    out[i] = static_cast<std::byte>(code_of(i) | code_of(i + kBlock / 2) << 4);
}

class Int4Rows final : public RowMaker {
 public:
  explicit Int4Rows(const Int4Tensors& tensors)
      : tensors_(tensors), groups_((tensors.cols + tensors.group_size - 1) / tensors.group_size) {}

  void make_row(std::int64_t row, std::byte* out) const override {
    for (std::int64_t begin = 0; begin < tensors_.cols; begin += kBlock, out += kBlockBytes) {
      const std::int64_t group = begin / tensors_.group_size;
      const float scale = scale_of(row, group);
      std::memcpy(out, &scale, sizeof scale);
      out[4] = static_cast<std::byte>(zero_of(row, group));
      put_nibbles(out + 5, [&](std::int64_t i) { return quant_of(row, feature_at(begin + i)); });
    }
  }

 private:
  static constexpr std::int64_t kBlockBytes = 21;

  std::int64_t feature_at(std::int64_t place) const {
    return tensors_.order.empty() ? place : tensors_.order[static_cast<std::size_t>(place)];
  }

  unsigned quant_of(std::int64_t row, std::int64_t col) const {
    switch (tensors_.layout) {
      case Int4Tensors::Layout::kRows: return nibble_of(tensors_.words, row * (tensors_.cols / 8) + col / 8, col % 8);
      case Int4Tensors::Layout::kColumns: return nibble_of(tensors_.words, col / 8 * tensors_.rows + row, col % 8);
      case Int4Tensors::Layout::kAwq: break;
    }
    return nibble_of(tensors_.words, col * (tensors_.rows / 8) + row / 8, awq_place(row));
  }

  float scale_of(std::int64_t row, std::int64_t group) const {
    const bool by_row = tensors_.layout == Int4Tensors::Layout::kRows;
    return tensors_.scales[by_row ? row * groups_ + group : group * tensors_.rows + row];
  }

  unsigned zero_of(std::int64_t row, std::int64_t group) const {
    if (tensors_.zeros == nullptr) return kMiddle;
    switch (tensors_.layout) {
      case Int4Tensors::Layout::kRows: return nibble_of(tensors_.zeros, row / 8 * groups_ + group, row % 8);
      case Int4Tensors::Layout::kAwq:
        return nibble_of(tensors_.zeros, group * (tensors_.rows / 8) + row / 8, awq_place(row));
      case Int4Tensors::Layout::kColumns: break;
    }
    const unsigned stored = nibble_of(tensors_.zeros, group * (tensors_.rows / 8) + row / 8, row % 8);
    return tensors_.zeros_less_one ? (stored + 1) & 15u : stored;
  }

  Int4Tensors tensors_;
  std::int64_t groups_;
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

DType int4_type(std::int64_t group_size, std::int64_t cols) {
  return group_size % kScaleCols == 0 && cols % kScaleCols == 0 ? DType::kI4G128 : DType::kI4G32;
}

std::unique_ptr<const RowMaker> make_int4_rows(const Int4Tensors& tensors) {
  return std::make_unique<Int4Rows>(tensors);
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
