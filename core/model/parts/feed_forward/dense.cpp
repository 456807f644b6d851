#include "core/model/parts/feed_forward/feed_forwards.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/rank_cut.h"
#include "core/model/parts/spec_checker.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"

namespace quire {

namespace {

bool is_swiglu(const FeedForwardSpec& ffn) {
  return ffn.is_gated && ffn.activation.kind == Nonlinearity::kSilu && ffn.activation.limit == 0.0F;
}

}  // namespace

std::span<const RoleName> Dense::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kFfnSubNorm, {"ffn_sub_norm", ""}},
      {Role::kGate, {"ffn_gate", "mlp.gate_proj"}},
      {Role::kUp, {"ffn_up", "mlp.up_proj"}},
      {Role::kDown, {"ffn_down", "mlp.down_proj"}},
  };
  return kRoles;
}

void Dense::list_weights(const LayerSpec& layer, WeightList& list) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  const std::int64_t hidden = list.hidden_size();
  if (ffn.is_gated && !ffn.fused_gate) list.product(Role::kGate, Role::kGate, ffn.size, hidden);
  list.product(Role::kUp, Role::kGate, ffn.fused_gate ? 2 * ffn.size : ffn.size, hidden);
  if (ffn.sub_norm) list.vector(Role::kFfnSubNorm, ffn.size);
  WeightNeed& down = list.alone(Role::kDown, hidden, ffn.size);
  down.is_sensitive = true;
  down.gain = 2.0F;
}

void Dense::check(const LayerSpec& layer, std::int64_t /*index*/, const SpecChecker& check) const {
  check.in_range("the feed-forward length", layer.feed_forward.size, 1, 1 << 22);
}

void Dense::fit(const LayerSpec& layer, std::int64_t /*hidden_size*/, Widths& widths) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  widths.fit(kGateUp, ffn.is_gated ? 2 * ffn.size : ffn.size);
  if (!is_plain(layer)) widths.fit(kActivated, ffn.size);
}

const char* Dense::lacking(const LayerSpec& layer, const ModelSpec& /*model*/, Backend& backend) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  return first_lacking({{ffn.sparsity.has_value(), Ability::kStreams, "sparse feed-forwards"},
                        {!is_swiglu(ffn) || ffn.sub_norm, Ability::kGraph, "feed-forwards other than SwiGLU"}},
                       backend);
}

bool Dense::is_plain(const LayerSpec& layer) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  return is_swiglu(ffn) && !ffn.sub_norm && !ffn.sparsity;
}

std::string Dense::why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const {
  const FeedForwardSpec& ffn = layer.feed_forward;
  if (ffn.sub_norm) return "a norm of the feed-forward is over all of its columns";
  if (ffn.sparsity) return "its feed-forwards are sparse";
  return RankCut::why_not_columns("a feed-forward", ffn.size, RankCut::product_of(weights, Role::kDown), num_ranks);
}

void Dense::cut(const LayerSpec& layer, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const {
  const FeedForwardSpec& whole = layer.feed_forward;
  LinearSource& down = group.products.at(Role::kDown);
  const FeatureRange part = rank.features(whole.size, RankCut::features_of_block({&down, 1}));
  spec.feed_forward.size = part.count;
  RankCut::take_rows(group, Role::kGate, RankCut::halves(part, whole.size, whole.is_gated));
  rank.take_columns(down, part);
}

void Dense::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  const FeedForwardSpec& ffn = layer.spec.feed_forward;
  const MatrixView gate_up = layer.room(kGateUp, out.rows, ffn.is_gated ? 2 * ffn.size : ffn.size);
  layer.multiply(Role::kGate, in, gate_up, false);
  if (is_plain(layer.spec)) return layer.multiply_cut(Role::kDown, gated(gate_up), out, accumulate);
  GraphOps& graph = layer.graph();
  const MatrixView activated = layer.room(kActivated, out.rows, ffn.size);
  const MatrixView up = ffn.is_gated ? columns(gate_up, ffn.size, ffn.size) : MatrixView{};
  const MatrixView gate = columns(gate_up, 0, ffn.size);
  if (ffn.sparsity) graph.keep_excess(gate, static_cast<float>(*ffn.sparsity), ffn.sparsity_of_sample);
  graph.activate(ffn.activation, gate, up, activated);
  if (ffn.sub_norm) layer.backend().rms_norm(activated, layer.vector(Role::kFfnSubNorm), layer.eps(), activated);
  layer.multiply_cut(Role::kDown, activated, out, accumulate);
}

}  // namespace quire
