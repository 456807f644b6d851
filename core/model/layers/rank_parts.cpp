#include "core/model/layers/rank_parts.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/base/result.h"
#include "core/model/parts/model/head.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/rank_cut.h"
#include "kernels/parallel/rank_sum.h"

namespace quire {

namespace {

std::string why_not_model(const ModelSpec& spec, int num_ranks) {
  std::string why = spec.is_causal ? "" : "it attends in both directions";
  for (const ModelPart* part : model_parts()) {
    if (why.empty()) why = part->why_not_cut(spec, num_ranks);
  }
  return why;
}

std::string why_not_layer(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) {
  std::string why = mixer_part(layer).why_not_cut(layer, weights, num_ranks);
  return why.empty() ? feed_forward_part(layer).why_not_cut(layer, weights, num_ranks) : why;
}

}  // namespace

std::string why_not_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks) {
  if (num_ranks == 1) return "";
  if (num_ranks > kMostRanks) return fmt::format("more than {} devices are not used together", kMostRanks);
  std::string why = why_not_model(spec, num_ranks);
  for (std::size_t layer = 0; layer < spec.layers.size() && why.empty(); ++layer)
    why = why_not_layer(spec.layers[layer], weights.layers[layer], num_ranks);
  return why;
}

void require_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks) {
  const std::string why = why_not_cut(spec, weights, num_ranks);
  if (why.empty()) return;
  std::vector<int> fitting;
  for (int count = 2; count <= kMostRanks; ++count) {
    if (why_not_cut(spec, weights, count).empty()) fitting.push_back(count);
  }
  const std::string instead = fitting.empty() ? "leave backend.tensor_parallel out"
                                              : fmt::format("{} {}, or one device", fmt::join(fitting, ", "),
                                                            fitting.size() == 1 ? "fits" : "fit");
  throw StartupError(fmt::format("{} cannot be computed by {} devices together: {}; {}", spec.config.architecture,
                                 num_ranks, why, instead));
}

RankPart part_of_rank(const ModelSpec& spec, const WeightSources& weights, int rank, int num_ranks) {
  RankPart out{spec, weights};
  if (num_ranks == 1) return out;
  const RankCut cut(rank, num_ranks, out.weights.owned);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& whole = spec.layers[i];
    mixer_part(whole).cut(whole, cut, out.spec.layers[i], out.weights.layers[i]);
    feed_forward_part(whole).cut(whole, cut, out.spec.layers[i], out.weights.layers[i]);
  }
  Head::cut(cut, out.spec, out.weights.model);
  return out;
}

}  // namespace quire
