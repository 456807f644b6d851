// ReferenceModel: the same transformers written again in double precision, straight from the papers, for comparison
// only. It shares no code with the model or the kernels but the decoding of tensor types, which has golden files of its
// own. One thread at a time. Shapes come from the specification that a test wrote its file from, never from the file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/parts/model_config.h"
#include "tests/unit/model/recording_backend.h"

namespace quire::test {

// Rounding of a backend's inputs to matrix products; the products themselves are exact here.
enum class Rounding {
  kNone,
  kInt8Activations,  // before quantised matrices: each 32 activations to int8 with one scale
  kInt8OrBf16,       // the same, and before BF16 matrices activations to bf16
  kInt8OrHalves,     // the same, and before F16, BF16 and float8 matrices activations and weights to bf16
  kBf16,             // before all but F32 matrices: activations and decoded weights to bf16
};

class ReferenceModel {
 public:
  ReferenceModel(const ModelConfig& config, const GgufFile& weights, Rounding rounding);

  // Logits of every token of one sequence. With kNone `recording` is not used; otherwise rounding uses the values that
  // the backend under test rounded in the same step, after checking that they agree with those computed here.
  std::vector<std::vector<double>> logits(std::span<const std::int32_t> ids, const Recording& recording = {}) const;

 private:
  struct Matrix {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    DType type = DType::kF32;
    std::vector<double> values;
  };
  using Vector = std::vector<double>;
  struct Cache {
    std::vector<Vector> keys;  // a row per token: all heads
    std::vector<Vector> values;
  };

  // A row on its way through the layers.
  struct Row {
    std::size_t position = 0;
    std::size_t product = 0;  // products so far, as the backend counts them
    const Recording& recording;
  };

  const Matrix& matrix(const std::string& name) const { return matrices_.at(name); }
  // kNone, kInt8Activations or kBf16: the rounding before this product.
  Rounding rounding_before(const Matrix& weights) const;
  Vector multiply(const std::string& stem, const Vector& x, const Row& row) const;
  Vector rounded(const Vector& x, const Row& row, Rounding rounding) const;
  Vector rms_norm(const Vector& x, const std::string& name, std::size_t begin, std::size_t count) const;
  void norm_heads(Vector& x, const std::string& name) const;
  void rotate(Vector& heads, std::size_t position) const;
  double angle(std::size_t position, std::size_t pair) const;
  Vector attend(const Vector& query, const Cache& cache) const;
  Vector layer(std::int64_t index, Vector x, Row& row, Cache& cache) const;

  ModelConfig config_;
  Rounding rounding_;
  std::map<std::string, Matrix> matrices_;  // vectors are matrices of one row
};

}  // namespace quire::test
