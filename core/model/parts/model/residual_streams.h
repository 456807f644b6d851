// ResidualStreams: several residual streams (AltUp, arXiv 2301.13310) and the low-rank branch beside attention (LAuReL,
// arXiv 2411.07501). The first stream is split into all; each layer computes a prediction of the first stream from all,
// and corrects all by the result; in the end all are merged.
#pragma once

#include "core/model/parts/model/model_part.h"

namespace quire {

class LayerRun;
class ModelRun;
struct ProductInput;

class ResidualStreams final : public ModelPart {
 public:
  std::span<const RoleName> roles() const override;
  void list_weights(const ModelSpec& spec, WeightList& list) const override;
  void list_layer(const ModelSpec& spec, const LayerSpec& layer, WeightList& list) const override;
  void check(const ModelSpec& spec, const SpecChecker& check) const override;
  void fit(const ModelSpec& spec, Widths& widths) const override;
  const char* lacking(const ModelSpec& spec, Backend& backend) const override;
  std::string why_not_cut(const ModelSpec& spec, int num_ranks) const override;

  // Returns [rows, num_streams * hidden].
  static MatrixView split(const ModelRun& model, MatrixView x);
  static void merge(const ModelRun& model, MatrixView streams, MatrixView x);
  // Sets x to the predicted first stream; returns the prediction of all.
  static MatrixView predict(const LayerRun& layer, MatrixView x);
  // Corrects the streams by x, the layer's output.
  static void correct(const LayerRun& layer, MatrixView predicted, MatrixView x);
  // x = (x + in + norm(right(left(in)))) / sqrt(2)
  static void add_laurel(const LayerRun& layer, const ProductInput& in, MatrixView x);

 private:
  static MatrixView factors(const LayerRun& layer, WeightRole role, MatrixView x, std::int64_t count);
};

}  // namespace quire
