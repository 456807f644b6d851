#include "core/model/parts/feed_forward/feed_forwards.h"

#include <cmath>

#include "core/model/parts/layer_run.h"
#include "core/model/parts/views.h"
#include "core/model/parts/weight_list.h"
#include "kernels/check.h"

namespace quire {

std::span<const RoleName> DenseAndExperts::roles() const {
  static constexpr RoleName kRoles[] = {
      {Role::kRouterScale, {"ffn_gate_inp", "router.scale$", ".scale"}},
      {Role::kPostFfnNorm1, {"post_ffw_norm_1", "post_feedforward_layernorm_1"}},
      {Role::kPreFfnNorm2, {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"}},
      {Role::kPostFfnNorm2, {"post_ffw_norm_2", "post_feedforward_layernorm_2"}},
  };
  return kRoles;
}

void DenseAndExperts::list_weights(const LayerSpec& layer, WeightList& list) const {
  dense_.list_weights(layer, list);
  experts_.list_weights(layer, list);
  for (const Role norm : {Role::kRouterScale, Role::kPostFfnNorm1, Role::kPreFfnNorm2, Role::kPostFfnNorm2})
    list.vector(norm, list.hidden_size());
}

std::vector<ExpertMatrix> DenseAndExperts::expert_matrices(const LayerSpec& layer, std::int64_t hidden_size) const {
  return experts_.expert_matrices(layer, hidden_size);
}

void DenseAndExperts::check(const LayerSpec& layer, std::int64_t index, const SpecChecker& check) const {
  dense_.check(layer, index, check);
  experts_.check(layer, index, check);
}

void DenseAndExperts::fit(const LayerSpec& layer, std::int64_t hidden_size, Widths& widths) const {
  dense_.fit(layer, hidden_size, widths);
  experts_.fit(layer, hidden_size, widths);
  widths.fit(kExpertIn, 2 * hidden_size);
}

const char* DenseAndExperts::lacking(const LayerSpec& layer, const ModelSpec& model, Backend& backend) const {
  const char* const what = experts_.lacking(layer, model, backend);
  return what == nullptr ? dense_.lacking(layer, model, backend) : what;
}

std::string DenseAndExperts::why_not_cut(const LayerSpec& layer, const SourceGroup& weights, int num_ranks) const {
  std::string why = dense_.why_not_cut(layer, weights, num_ranks);
  return why.empty() ? experts_.why_not_cut(layer, weights, num_ranks) : why;
}

void DenseAndExperts::cut(const LayerSpec& whole, const RankCut& rank, LayerSpec& spec, SourceGroup& group) const {
  dense_.cut(whole, rank, spec, group);
  experts_.cut(whole, rank, spec, group);
}

// The router sees the unit-norm input.
void DenseAndExperts::run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const {
  QUIRE_CHECK(in.form == ProductInput::Form::kPlain && !accumulate, "the branch takes the layer's input");
  const MatrixView x = in.x;
  const MatrixView inputs = layer.room(kExpertIn, x.rows, 2 * x.cols);
  const MatrixView router_in = columns(inputs, 0, x.cols);
  const MatrixView expert_in = columns(inputs, x.cols, x.cols);
  const MatrixView dense = layer.room(kBranch2, x.rows, x.cols);
  dense_.run(layer, layer.input(layer.spec.ffn_norm, x, true), dense, false);
  layer.norm(Role::kPostFfnNorm1, dense, dense);
  layer.backend().rms_norm(x, layer.vector(Role::kRouterScale), layer.eps(), router_in);
  layer.graph().scale(router_in, 1.0F / std::sqrt(static_cast<float>(x.cols)));
  layer.norm(Role::kPreFfnNorm2, x, expert_in);
  Experts::run_routed(layer, router_in, expert_in, out);
  layer.norm(Role::kPostFfnNorm2, out, out);
  layer.graph().add(dense, 1.0F, out);
}

}  // namespace quire
