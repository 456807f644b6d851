#include "core/model/parts/mixers/recurrent_mixers.h"

#include "core/model/parts/layer_run.h"
#include "core/model/parts/spec_checker.h"

namespace quire {

std::span<const RoleName> RecurrentMixer::shared_roles() {
  static constexpr RoleName kRoles[] = {
      {Role::kSsmIn, {"ssm_in", ""}},
      {Role::kSsmConv, {"ssm_conv1d", "linear_attn.conv1d"}},
      {Role::kSsmDt, {"ssm_dt", "linear_attn.dt_bias$", ".bias"}},
      {Role::kSsmA, {"ssm_a", "linear_attn.A_log$", ""}},
      {Role::kSsmD, {"ssm_d", "", ""}},
      {Role::kSsmNorm, {"ssm_norm", "linear_attn.norm"}},
      {Role::kSsmOut, {"ssm_out", "linear_attn.out_proj"}},
      {Role::kSsmBeta, {"ssm_beta", "linear_attn.in_proj_b"}},
  };
  return kRoles;
}

void RecurrentMixer::check(const LayerSpec& layer, std::int64_t /*index*/, const SpecChecker& check) const {
  check.in_range("the number of convolution taps", layer.recurrent.taps, 2, 8);
}

const char* RecurrentMixer::lacking(const LayerSpec& /*layer*/, const ModelSpec& /*model*/, Backend& backend) const {
  return backend.recurrent() == nullptr ? "recurrent layers" : nullptr;
}

void RecurrentMixer::check_matrices(const RecurrentSpec& net, const SpecChecker& check) {
  check.in_range("the number of value heads", net.value_heads, 1, 1 << 14);
  check.in_range("the state size", net.key_dim, 1, 1 << 12);
  check.in_range("the head size", net.value_dim, 1, 1 << 12);
}

const char* RecurrentMixer::lacking_matrices(const RecurrentSpec& net, Backend& backend) {
  if (backend.recurrent() == nullptr) return "recurrent layers";
  return net.key_dim > backend.recurrent()->most_key_dim() ? "recurrent states of this size" : nullptr;
}

void RecurrentMixer::convolve(const LayerRun& layer, MatrixView x) {
  layer.recurrent().short_conv(layer.slice.attention, layer.state(false),
                               {.taps = layer.spec.recurrent.taps,
                                .weights = layer.vector(Role::kSsmConv),
                                .bias = layer.weights.bias(Role::kSsmConv),
                                .silu = true},
                               x, {}, {}, x);
}

}  // namespace quire
