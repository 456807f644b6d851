// ShortConv: the gated short convolution of LFM2.
#pragma once

#include "core/model/parts/mixers/recurrent_mixer.h"

namespace quire {

class ShortConv final : public RecurrentMixer {
 public:
  const char* name() const override { return "short convolution"; }
  std::span<const RoleName> roles() const override;
  void list_weights(const LayerSpec& layer, WeightList& list) const override;
  void fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const override;
  StateSize state(const LayerSpec& layer) const override;
  void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const override;
};

}  // namespace quire
