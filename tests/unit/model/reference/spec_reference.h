// SpecReference: the outputs of a ModelSpec in double precision, without kernels, caches or steps: every token of one
// sequence, layer by layer, as the architectures' papers and NOTES describe them. One thread at a time. It shares no
// code with the graph except the decoding of tensor types, which has golden files of its own.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/parts/model_spec.h"

namespace quire::test {

class SpecReference {
 public:
  using Vector = std::vector<double>;
  using Rows = std::vector<Vector>;  // a row per token

  SpecReference(const ModelSpec& spec, const GgufFile& weights);

  Rows hidden(std::span<const std::int32_t> ids) const;      // after the last norm
  Rows embeddings(std::span<const std::int32_t> ids) const;  // after the products of embedding models
  Rows logits(std::span<const std::int32_t> ids) const;
  Vector labels(std::span<const std::int32_t> ids) const;  // a classifier's scores of the whole sequence

 private:
  struct Kv {
    Rows keys;
    Rows values;
  };
  // Projections of a token, before norms and rotation.
  struct Projections {
    Vector query, key, value, gate;
  };

  const Vector& values(WeightRole role, std::int64_t layer, const char* suffix = nullptr) const;
  bool has(WeightRole role, std::int64_t layer, const char* suffix = nullptr) const;
  // x times the matrix of `rows` rows that begins at row `first` of the tensor.
  Vector product(WeightRole role, std::int64_t layer, const Vector& x, std::size_t first, std::size_t rows) const;
  Vector product(WeightRole role, std::int64_t layer, const Vector& x) const;

  Vector norm(WeightRole role, std::int64_t layer, const Vector& x) const;
  Vector rms(std::span<const double> x, const Vector* weight) const;
  Vector layer_norm(std::span<const double> x, std::span<const double> weight, const double* bias) const;
  void rotate(Vector& heads, std::size_t dim, std::size_t first, int rope, std::size_t position) const;

  Rows embed(std::span<const std::int32_t> ids, std::vector<Rows>& per_layer) const;
  void run_layer(std::int64_t index, Rows& x, std::vector<Kv>& kv) const;
  Vector per_layer_branch(std::int64_t index, const Vector& x, const Vector& own) const;
  // Splits rows by stream; empty if there is one stream.
  std::vector<Rows> split_streams(const Rows& x) const;
  Rows merged(const std::vector<Rows>& streams) const;
  void run_streams(std::int64_t index, std::vector<Rows>& streams, const Rows& per_layer, std::vector<Kv>& kv) const;
  Vector stream_factors(WeightRole role, std::int64_t index, const Vector& x) const;
  Rows mix(std::int64_t index, const Rows& in, std::vector<Kv>& kv) const;
  Projections project(const AttentionSpec& spec, std::int64_t index, const Vector& x) const;
  Rows attention(std::int64_t index, const Rows& in, std::vector<Kv>& kv) const;
  void norm_heads(const AttentionSpec& spec, WeightRole role, std::int64_t index, Vector& heads,
                  std::size_t count) const;
  Vector attend(const AttentionSpec& spec, std::int64_t index, const Vector& query, const Kv& kv, std::size_t t) const;
  double temperature(const AttentionSpec& spec, std::size_t position) const;
  Rows latent(std::int64_t index, const Rows& in) const;
  Rows delta_net(std::int64_t index, const Rows& in) const;
  Rows kimi_delta(std::int64_t index, const Rows& in) const;
  Rows short_conv(std::int64_t index, const Rows& in) const;
  Rows mamba(std::int64_t index, const Rows& in) const;
  Rows mamba2(std::int64_t index, const Rows& in) const;
  Rows lightning(std::int64_t index, const Rows& in) const;
  Rows convolve(WeightRole role, std::int64_t index, const Rows& x, bool silu) const;

  // x: before its norm where both kinds are; before: the layer's input.
  Vector feed_forward(std::int64_t index, const Vector& x, const Vector& before) const;
  Vector dense(std::int64_t index, const Vector& in) const;
  Vector experts(std::int64_t index, const Vector& router_in, const Vector& in) const;
  Vector step_norm(WeightRole role, std::int64_t index, const Vector& x) const;
  Vector shared_expert(std::int64_t index, const Vector& in) const;

  const ModelSpec& spec_;
  std::map<std::string, Vector> tensors_;
};

}  // namespace quire::test
