// Row makers: rows of quantised Hugging Face weights in the blocks that kernels/ packs, made during packing. Immutable
// after construction; any thread. Sources: the compressed-tensors, GPTQ, AutoAWQ and OCP microscaling formats.
// Invariant: every value is the format's own; only its place changes. The makers keep views of the files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace quire {

// A 16- or 32-bit float tensor, read element by element.
struct FloatView {
  DType type = DType::kF32;
  const std::byte* data = nullptr;
  float operator[](std::int64_t index) const;
};

// Integers packed into words of 32 bits, in streams: the integers of a stream follow one another from the lowest bit
// on, across words.
struct PackedInts {
  const std::byte* words = nullptr;
  int bits = 4;
  std::int64_t word_stride = 1;    // from a word of a stream to its next one
  std::int64_t stream_stride = 0;  // from a stream's first word to the next stream's
  bool is_awq = false;             // a word has its eight integers' even ones first
  bool is_signed = false;          // two's complement; read with half of their range added

  unsigned at(std::int64_t stream, std::int64_t index) const;
};

// Integers, with a scale and zero per group of input features: value = scale * (quant - zero).
struct IntTensors {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_size = 0;
  PackedInts quants = {};                    // streams of outputs, each of input features
  bool by_input = false;                     // streams of input features, each of outputs
  PackedInts zeros = {};                     // streams of groups, each of outputs; no words: half of the range
  bool zeros_less_one = false;               // stored zeros count from one
  FloatView scales = {};                     // [rows][groups]
  bool scales_by_group = false;              // [groups][rows]
  bool has_one_scale = false;                // a single scale for all
  std::span<const std::int32_t> order = {};  // [cols]: input feature at each place; empty: unchanged

  std::int64_t num_groups() const { return (cols + group_size - 1) / group_size; }
  float scale_of(std::int64_t row, std::int64_t group) const;
  unsigned zero_of(std::int64_t row, std::int64_t group) const;
};

// Up to four bits: DType::kI4G32 or kI4G128, by group_size. Eight bits: kQ8_0; zeros must be the middle of the range,
// and scales representable in 16-bit float.
std::unique_ptr<const RowMaker> make_int_rows(const IntTensors& tensors);
DType int_type(const IntTensors& tensors);

// E4M3 with a scale per block of rows and columns. Several matrices may follow one another, each with its own
// scales.
struct Float8Tensors {
  std::int64_t rows = 0;  // rows of a matrix
  std::int64_t cols = 0;
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;  // a multiple of 128, or at least cols
  const std::byte* data = nullptr;
  FloatView scales = {};
};
std::unique_ptr<const RowMaker> make_float8_rows(const Float8Tensors& tensors);

// MXFP4: blocks [rows][cols / 32][16], neighbours in a byte; scales [rows][cols / 32].
std::unique_ptr<const RowMaker> make_mxfp4_rows(std::int64_t cols, const std::byte* blocks, const std::byte* scales);

// NVFP4: neighbours in a byte [rows][cols / 2]; scales E4M3 [rows][cols / 16]. cols is a multiple of 64.
std::unique_ptr<const RowMaker> make_nvfp4_rows(std::int64_t cols, const std::byte* pairs, const std::byte* scales);

// Consecutive matrices whose rows are in another order than the model's.
struct StackedTensors {
  DType type = DType::kF32;
  std::int64_t rows = 0;  // rows of a matrix
  std::int64_t cols = 0;
  bool is_transposed = false;  // unquantised elements stored as [cols][rows]
  bool is_paired = false;      // rows 2i and 2i + 1 are row i of the first and of the second half
  const std::byte* data = nullptr;
  std::shared_ptr<const RowMaker> maker = nullptr;  // replaces data for matrices that are not transposed
};
std::unique_ptr<const RowMaker> make_stacked_rows(const StackedTensors& tensors);

}  // namespace quire
