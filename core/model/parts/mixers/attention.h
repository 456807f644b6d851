// Attention: over K and V of heads (arXiv 1706.03762; grouped heads: 2305.13245; rotations: 2104.09864), with windows,
// sinks, gates, norms of queries and keys, and K and V of another layer.
#pragma once

#include "core/model/parts/part.h"

namespace quire {

class Attention final : public Part {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  std::int64_t turned_rows(const LayerSpec& layer, WeightRole role) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  void bound(const LayerSpec& layer, StepBounds& step) const override;
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec& layer) const override;
  std::int64_t rotated_dim(const LayerSpec& layer) const override;
  bool has_heads() const override { return true; }
  KvGroupSpec kept(const LayerSpec& layer) const override;
  KvLayerShape cached_heads(const LayerSpec& layer) const override;
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const override;
  bool takes_one_product(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
  void store(const LayerRun& layer, const ProductInput& in, std::int64_t rows) const override;

  // Multiplies queries by the temperature of their positions.
  static void scale_by_temperature(const LayerRun& layer, MatrixView q);

 private:
  // Results of the projections, normed and rotated; absent ones have no columns.
  struct Projected {
    MatrixView q;
    MatrixView k;
    MatrixView v;
    MatrixView gate;
  };
  static Projected project(const LayerRun& layer, const ProductInput& in, std::int64_t rows);
  static void norm_queries_and_keys(const LayerRun& layer, MatrixView q, MatrixView k);
  static void norm_heads(const LayerRun& layer, WeightRole role, MatrixView heads, std::int64_t count);
  static void rotate(const LayerRun& layer, MatrixView q, MatrixView k);
  static void gate_output(const LayerRun& layer, const ProductInput& in, MatrixView attended);
  // Copies heads whose size the cache does not take into wider ones, padded with zeros.
  static MatrixView widened(const LayerRun& layer, ActivationName to, MatrixView heads, std::int64_t count,
                            std::int64_t width);
  static void narrow(const LayerRun& layer, MatrixView heads, std::int64_t count, MatrixView out);
  bool is_padded(const LayerSpec& layer) const;
  void store_heads(const LayerRun& layer, MatrixView k, MatrixView v) const;
  void attend(const LayerRun& layer, MatrixView q, MatrixView out) const;
  void attend_cached(const LayerRun& layer, MatrixView q, MatrixView out) const;
};

}  // namespace quire
