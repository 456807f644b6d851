// AttentionAndMamba2: attention and a state space of the same input, side by side (Falcon-H1, arXiv 2507.22448).
#pragma once

#include "core/model/parts/mixers/attention.h"
#include "core/model/parts/mixers/recurrent_mixers.h"

namespace quire {

class AttentionAndMamba2 final : public Part {
 public:
  const char* name() const override { return "attention beside Mamba-2"; }
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  void bound(const LayerSpec& layer, StepBounds& step) const override { attention_.bound(layer, step); }
  const char* lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const override;
  bool is_plain(const LayerSpec&) const override { return false; }
  std::int64_t rotated_dim(const LayerSpec& layer) const override { return attention_.rotated_dim(layer); }
  bool has_heads() const override { return true; }
  KvGroupSpec kept(const LayerSpec& layer) const override { return attention_.kept(layer); }
  KvLayerShape cached_heads(const LayerSpec& layer) const override { return attention_.cached_heads(layer); }
  StateSize state(const LayerSpec& layer) const override { return mamba2_.state(layer); }
  std::string why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;

 private:
  const Attention attention_{};
  const Mamba2 mamba2_{};
};

}  // namespace quire
