// Feed-forwards and experts.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/model/reference/reference_math.h"
#include "tests/unit/model/reference/spec_reference.h"

namespace quire::test {

using Vector = SpecReference::Vector;
using Role = WeightRole;

namespace {

// The part above the mean plus `deviations` standard deviations.
Vector excess(Vector x, double deviations, bool of_sample) {
  const auto count = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / count;
  double squares = 0.0;
  for (const double value : x)
    squares += (value - mean) * (value - mean);
  const double cutoff = mean + deviations * std::sqrt(squares / std::max(1.0, of_sample ? count - 1.0 : count));
  for (double& value : x)
    value = std::max(0.0, value - cutoff);
  return x;
}

}  // namespace

Vector SpecReference::dense(std::int64_t index, const Vector& in) const {
  const FeedForwardSpec& ffn = spec_.layers[static_cast<std::size_t>(index)].feed_forward;
  const auto size = static_cast<std::size_t>(ffn.size);
  Vector gate;
  Vector up(size, 1.0);
  if (ffn.fused_gate) {
    gate = product(Role::kUp, index, in, 0, size);
    if (ffn.is_gated) up = product(Role::kUp, index, in, size, size);
  } else {
    gate = product(ffn.is_gated ? Role::kGate : Role::kUp, index, in);
    if (ffn.is_gated) up = product(Role::kUp, index, in);
  }
  if (ffn.sparsity) gate = excess(gate, *ffn.sparsity, ffn.sparsity_of_sample);
  for (std::size_t i = 0; i < size; ++i)
    gate[i] = activated(ffn.activation, gate[i], up[i]);
  if (ffn.sub_norm) gate = rms(gate, &values(Role::kFfnSubNorm, index));
  return product(Role::kDown, index, gate);
}

Vector SpecReference::feed_forward(std::int64_t index, const Vector& x, const Vector& before) const {
  const LayerSpec& layer = spec_.layers[static_cast<std::size_t>(index)];
  using Kind = FeedForwardSpec::Kind;
  if (layer.feed_forward.kind == Kind::kDense) return dense(index, x);
  if (layer.feed_forward.kind == Kind::kExperts) return experts(index, layer.feed_forward.routes_early ? before : x, x);
  Vector out = norm(Role::kPostFfnNorm1, index, dense(index, norm(layer.ffn_norm, index, x)));
  Vector router_in = rms(x, &values(Role::kRouterScale, index));
  for (double& value : router_in)
    value /= std::sqrt(static_cast<double>(x.size()));
  const Vector sum = experts(index, router_in, norm(Role::kPreFfnNorm2, index, x));
  add_scaled(out, norm(Role::kPostFfnNorm2, index, sum));
  return out;
}

Vector SpecReference::experts(std::int64_t index, const Vector& router_in, const Vector& in) const {
  const FeedForwardSpec& ffn = spec_.layers[static_cast<std::size_t>(index)].feed_forward;
  const auto width = static_cast<std::size_t>(ffn.expert_size);
  Vector seen = ffn.latent_size > 0 ? product(Role::kLatentDown, index, in) : in;
  const Vector bias = ffn.has_choice_bias ? values(Role::kChoiceBias, index) : Vector{};
  Vector sum(seen.size());
  for (const auto& [expert, weight] : routed(ffn.route, product(Role::kRouter, index, router_in), bias)) {
    Vector x = seen;
    for (double& value : x)
      value *= ffn.weight_input ? weight : 1.0;
    const std::size_t each = ffn.fused_experts ? 2 * width : width;
    const auto part = [&](Role role, std::size_t first) {
      return product(role, index, x, expert * each + first, width);
    };
    Vector gate = ffn.fused_experts ? part(Role::kGateUpExperts, 0)
                                    : part(ffn.experts_gated ? Role::kGateExperts : Role::kUpExperts, 0);
    Vector up(width, 1.0);
    if (ffn.fused_experts) {
      up = part(Role::kGateUpExperts, width);
    } else if (ffn.experts_gated) {
      up = part(Role::kUpExperts, 0);
    }
    for (std::size_t i = 0; i < width; ++i)
      gate[i] = activated(ffn.expert_activation, gate[i], up[i]);
    const Vector y = product(Role::kDownExperts, index, gate, expert * seen.size(), seen.size());
    double factor = ffn.weight_input ? 1.0 : weight;
    if (has(Role::kDownExpertsScale, index)) factor *= values(Role::kDownExpertsScale, index).at(expert);
    add_scaled(sum, y, factor);
  }
  if (ffn.latent_size > 0) sum = product(Role::kLatentUp, index, sum);
  if (has(Role::kExpertsBias, index)) add_scaled(sum, values(Role::kExpertsBias, index));
  if (ffn.shared_size > 0) add_scaled(sum, shared_expert(index, in));
  for (double& value : sum)
    value *= ffn.experts_scale;
  return sum;
}

Vector SpecReference::shared_expert(std::int64_t index, const Vector& in) const {
  const FeedForwardSpec& ffn = spec_.layers[static_cast<std::size_t>(index)].feed_forward;
  Vector gate = product(ffn.experts_gated ? Role::kGateShared : Role::kUpShared, index, in);
  const Vector up = ffn.experts_gated ? product(Role::kUpShared, index, in) : Vector(gate.size(), 1.0);
  for (std::size_t i = 0; i < gate.size(); ++i)
    gate[i] = activated(ffn.shared_activation, gate[i], up[i]);
  Vector out = product(Role::kDownShared, index, gate);
  if (!ffn.shared_gate) return out;
  const double share = sigmoid(product(Role::kSharedGate, index, in)[0]);
  for (double& value : out)
    value *= share;
  return out;
}

}  // namespace quire::test
