// Row makers: rows of quantised Hugging Face weights in the blocks that kernels/ packs, made while they are packed.
// Immutable after construction; any thread. Sources: the compressed-tensors, GPTQ, AutoAWQ and OCP microscaling
// formats. Invariant: every value is the format's own; only its place changes. The makers keep views of the files.
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

// Integers of four bits, scale and zero per group of input features: value = scale * (quant - zero).
struct Int4Tensors {
  enum class Layout : std::uint8_t {
    kRows,     // eight input features in a word: [rows][cols / 8]; zeros [rows / 8][groups]
    kColumns,  // the same, input features first: [cols / 8][rows]; zeros [groups][rows / 8]
    kAwq,      // eight outputs in a word, even ones first: [cols][rows / 8]; zeros [groups][rows / 8]
  };
  Layout layout = Layout::kRows;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_size = 0;
  const std::byte* words = nullptr;
  const std::byte* zeros = nullptr;  // null: 8
  bool zeros_less_one = false;
  FloatView scales = {};                     // [rows][groups], else [groups][rows]
  std::span<const std::int32_t> order = {};  // [cols]: which input feature comes at a place; empty: its own
};

// DType::kI4G32 or kI4G128, as group_size says.
std::unique_ptr<const RowMaker> make_int4_rows(const Int4Tensors& tensors);
DType int4_type(std::int64_t group_size, std::int64_t cols);

// E4M3 with a scale per block of rows and columns. Several matrices may follow one another, each with scales of its
// own.
struct Float8Tensors {
  std::int64_t rows = 0;  // of one matrix
  std::int64_t cols = 0;
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;  // a multiple of 128, or at least cols
  const std::byte* data = nullptr;
  FloatView scales = {};
};
std::unique_ptr<const RowMaker> make_float8_rows(const Float8Tensors& tensors);

// MXFP4: blocks [rows][cols / 32][16], neighbours in a byte; scales [rows][cols / 32].
std::unique_ptr<const RowMaker> make_mxfp4_rows(std::int64_t cols, const std::byte* blocks, const std::byte* scales);

// Matrices behind one another whose rows lie in another place than the model's.
struct StackedTensors {
  DType type = DType::kF32;
  std::int64_t rows = 0;  // of one matrix
  std::int64_t cols = 0;
  bool is_transposed = false;  // [cols][rows] of unquantised elements
  bool is_paired = false;      // rows 2i and 2i + 1 are i of the first and of the second half
  const std::byte* data = nullptr;
  std::shared_ptr<const RowMaker> maker = nullptr;  // instead of data, of matrices that are not transposed
};
std::unique_ptr<const RowMaker> make_stacked_rows(const StackedTensors& tensors);

}  // namespace quire
