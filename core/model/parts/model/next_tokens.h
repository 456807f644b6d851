// NextTokens: the block that predicts the token after next (MTP, arXiv 2412.19437, in Qwen3.5's form), from a row's
// hidden state and the token after the row. Here a row is that token's: its K and V depend on no later token, so they
// can lie in its block; of the row before, only the hidden state is needed, which is a part of the recurrent state.
#pragma once

#include "core/model/parts/model/model_part.h"

namespace quire {

class LayerRun;
class ModelRun;

class NextTokens final : public ModelPart {
 public:
  std::span<const RoleName> roles() const override;
  // Weights of the block before those of its layer.
  static void list_block(WeightList& list);
  void fit(const ModelSpec& spec, Widths& widths) const override;
  const char* lacking(const ModelSpec& spec, Backend& backend) const override;
  std::string why_not_cut(const ModelSpec& spec, int num_ranks) const override;

  // Stores the block's K and V of all rows of the slice, whose hidden states before the last norm are x.
  static void store(const ModelRun& model, const LayerRun& block, std::span<const std::int32_t> ids, MatrixView x);
  // Computes the block for tokens and the hidden states before them. Returns its hidden states after its norm.
  static MatrixView run(const ModelRun& model, const LayerRun& block, std::span<const std::int32_t> ids,
                        MatrixView hidden);

 private:
  // The block's input.
  static void join(const ModelRun& model, const LayerRun& block, std::span<const std::int32_t> ids, MatrixView hidden,
                   MatrixView out);
};

}  // namespace quire
