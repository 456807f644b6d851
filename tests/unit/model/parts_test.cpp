#include "core/model/parts/parts.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "core/model/parts/mixers/recurrent_mixers.h"
#include "core/model/parts/model_spec.h"
#include "core/model/parts/source_group.h"
#include "core/model/parts/weight_list.h"

using namespace quire;

namespace {

// Numbers that every mixer and feed-forward can use.
LayerSpec layer_of(Mixer mixer) {
  LayerSpec layer;
  layer.mixer = mixer;
  layer.attention = {.num_heads = 4, .num_kv_heads = 2, .key_dim = 16, .value_dim = 16, .rope = 0};
  layer.latent = {.kv_rank = 24, .nope_dim = 16, .rope_dim = 8, .value_dim = 16};
  layer.recurrent = {.taps = 4,
                     .key_heads = 2,
                     .value_heads = 4,
                     .key_dim = 32,
                     .value_dim = 16,
                     .inner_size = 64,
                     .num_groups = 1,
                     .step_rank = 4,
                     .decays = {-0.5F, -0.25F, -0.125F, -0.1F}};
  layer.feed_forward.size = 128;
  return layer;
}

constexpr Mixer kAllMixers[] = {
    Mixer::kNone,      Mixer::kAttention, Mixer::kLatent, Mixer::kDeltaNet,           Mixer::kKimiDelta,
    Mixer::kShortConv, Mixer::kMamba,     Mixer::kMamba2, Mixer::kAttentionAndMamba2, Mixer::kLightning};

std::vector<WeightRole> weights_of(Mixer mixer) {
  const LayerSpec layer = layer_of(mixer);
  WeightList list(64);
  mixer_part(layer).list_weights(layer, list);
  std::vector<WeightRole> roles;
  for (const WeightNeed& need : list.take())
    roles.push_back(need.role);
  return roles;
}

}  // namespace

TEST_CASE("each role of a part has one owner and a name", "[model][parts]") {
  std::set<WeightRole> owned;
  const auto add = [&](std::span<const RoleName> roles) {
    for (const RoleName& row : roles) {
      CHECK(owned.insert(row.role).second);
      CHECK(role_info(row.role).gguf == row.names.gguf);
      CHECK(role_info(row.role).hf == row.names.hf);
      CHECK(role_info(row.role).suffix == row.names.suffix);
    }
  };
  add(RecurrentMixer::shared_roles());
  for (const auto parts : {mixer_parts(), feed_forward_parts()}) {
    for (const Part* part : parts)
      add(part->roles());
  }
  for (int role = 0; role < kNumWeightRoles; ++role)
    CHECK_FALSE(role_info(static_cast<WeightRole>(role)).gguf.empty());
}

TEST_CASE("a mixer's weights have owned roles", "[model][parts]") {
  for (const Mixer mixer : kAllMixers) {
    for (const WeightRole role : weights_of(mixer)) {
      const auto owns = [&](const Part* part) {
        return std::ranges::any_of(part->roles(), [&](const RoleName& row) { return row.role == role; });
      };
      const bool is_shared =
          std::ranges::any_of(RecurrentMixer::shared_roles(), [&](const RoleName& row) { return row.role == role; });
      CHECK((is_shared || std::ranges::any_of(mixer_parts(), owns)));
    }
  }
}

TEST_CASE("a model keeps what its mixers keep", "[model][parts]") {
  for (const Mixer mixer : kAllMixers) {
    INFO("mixer " << static_cast<int>(mixer));
    ModelConfig config;
    config.num_layers = 2;
    config.hidden_size = 64;
    config.max_context = 1000;
    ModelSpec spec = plain_spec(config);
    spec.layers.assign(2, layer_of(mixer));
    const Part& part = mixer_part(spec.layers.front());
    const StateSize state = part.state(spec.layers.front());
    CHECK(state_floats(spec) == 2 * (state.conv + state.behind_conv));
    CHECK(state_places(spec)[1].offset == state.conv + state.behind_conv);
    const KvGroupSpec kept = part.kept(spec.layers.front());
    const KvLayerShape shape = kv_layout_of(spec).shape(1);
    CHECK(shape.num_heads == (kept.num_layers > 0 ? kept.num_kv_heads : 0));
    std::size_t groups = 0;
    groups += kept.num_layers > 0 ? 1 : 0;
    groups += state.conv + state.behind_conv > 0 ? 1 : 0;
    CHECK(kv_groups_of(spec).size() == groups);
  }
}

TEST_CASE("attention beside Mamba-2 is both parts", "[model][parts]") {
  std::vector<WeightRole> both = weights_of(Mixer::kAttention);
  const std::vector<WeightRole> second = weights_of(Mixer::kMamba2);
  both.insert(both.end(), second.begin(), second.end());
  CHECK(weights_of(Mixer::kAttentionAndMamba2) == both);
  const LayerSpec layer = layer_of(Mixer::kAttentionAndMamba2);
  const auto width_of = [&](Mixer mixer, ActivationName which) {
    Widths widths;
    mixer_part(layer_of(mixer)).fit(layer_of(mixer), 64, widths);
    return widths[which];
  };
  for (const ActivationName which : {ActivationName::kQkv, ActivationName::kMixed, ActivationName::kAttended})
    CHECK(width_of(Mixer::kAttentionAndMamba2, which) ==
          std::max(width_of(Mixer::kAttention, which), width_of(Mixer::kMamba2, which)));
  CHECK(mixer_part(layer).rotated_dim(layer) == layer.attention.key_dim);
  CHECK(mixer_part(layer).why_not_cut(layer, {}, 2) == "it has recurrent layers");
}
