#include "core/model/parts/mixers/attention_mamba2.h"

namespace quire {

void AttentionAndMamba2::list_weights(const LayerSpec& layer, WeightList& list) const {
  attention_.list_weights(layer, list);
  mamba2_.list_weights(layer, list);
}

void AttentionAndMamba2::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  attention_.check(layer, index, check);
  mamba2_.check(layer, index, check);
}

void AttentionAndMamba2::fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const {
  attention_.fit(layer, hidden_size, widths);
  mamba2_.fit(layer, hidden_size, widths);
}

const char* AttentionAndMamba2::lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const {
  const char* const what = mamba2_.lacking(layer, model, backend);
  return what == nullptr ? attention_.lacking(layer, model, backend) : what;
}

std::string AttentionAndMamba2::why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const {
  return mamba2_.why_not_cut(layer, weights, num_ranks);
}

void AttentionAndMamba2::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  attention_.run(layer, in, out, accumulate);
  mamba2_.run(layer, in, out, true);
}

}  // namespace quire
