// LayerBranches: a layer: its mixer and its feed-forward, one after the other or side by side, with their norms.
#pragma once

#include "core/model/parts/model/model_part.h"

namespace quire {

class LayerRun;

class LayerBranches final : public ModelPart {
 public:
  std::span<const RoleName> roles() const override;
  void list_layer(const ModelSpec& spec, const LayerSpec& layer, WeightList& list) const override;
  void check(const ModelSpec& spec, const SpecChecker& check) const override;
  void fit(const ModelSpec& spec, Widths& widths) const override;
  const char* lacking(const ModelSpec& spec, Backend& backend) const override;

  // Computes the layer in place.
  static void run(const LayerRun& layer, MatrixView x);
  // x += the branch.
  static void add_mixer(const LayerRun& layer, MatrixView x);
  static void add_feed_forward(const LayerRun& layer, MatrixView x);
  // The last layer's feed-forward may compute fewer rows than its mixer: other rows are needed for K and V only.
  static bool can_narrow(const ModelSpec& spec);

 private:
  static bool is_plain(const ModelSpec& spec);
  static void add_both(const LayerRun& layer, MatrixView x);
  static void add_parallel(const LayerRun& layer, MatrixView x);
  static void add_branch(const LayerRun& layer, WeightRole norm, MatrixView branch, MatrixView x);
};

}  // namespace quire
