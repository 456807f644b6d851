// LayerEmbeddings: the end of a layer: an embedding of the token for each layer (Gemma 3n), and a factor of its output
// (Gemma 4).
#pragma once

#include "core/model/parts/model/model_part.h"

namespace quire {

class LayerRun;
class ModelRun;

class LayerEmbeddings final : public ModelPart {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const ModelSpec& spec, WeightList& list) const override;
  void list_layer(const ModelSpec& spec, const LayerSpec& layer, WeightList& list) const override;
  void check(const ModelSpec& spec, const SpecChecker& check) const override;
  void fit(const ModelSpec& spec, Widths& widths) const override;
  const char* lacking(const ModelSpec& spec, Backend& backend) const override;

  // Sums each layer's own embedding of the token and a projection of the common one, x: [rows, layers *
  // per_layer_size].
  static MatrixView run(const ModelRun& model, std::span<const std::int32_t> ids, MatrixView x);
  // The layer's contribution, in a buffer of its own.
  static MatrixView branch(const LayerRun& layer, MatrixView x);
  // Completes the layer's output.
  static void finish(const LayerRun& layer, MatrixView x);
};

}  // namespace quire
