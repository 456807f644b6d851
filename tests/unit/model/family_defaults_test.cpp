// Defaults for keys missing from files: the numbers in llama.cpp's readers, by family.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/result.h"
#include "core/model/tools/synth_families.h"

using namespace quire;

namespace {

// `changes`: keys that replace those of the tiny shape; a key without a value is removed.
ModelSpec spec_with(const std::string& name, const std::string& changes) {
  FamilyShape shape = find_family_shape(name).value();
  shape.keys += " " + changes;
  return read_family_shape(shape).spec;
}

std::vector<std::int64_t> windows_of(const ModelSpec& spec) {
  std::vector<std::int64_t> out;
  for (const LayerSpec& layer : spec.layers)
    out.push_back(layer.attention.window);
  return out;
}

std::string rotating_layers(const ModelSpec& spec) {
  std::string out;
  for (const LayerSpec& layer : spec.layers)
    out += layer.attention.rope < 0 ? '-' : static_cast<char>('0' + layer.attention.rope);
  return out;
}

}  // namespace

TEST_CASE("Gemma's windows, caps and scales without keys are those of its readers", "[model][families]") {
  const ModelSpec two = spec_with("tiny-gemma2", "win= attn_logit_softcapping= final_logit_softcapping=");
  CHECK(windows_of(two) == std::vector<std::int64_t>{4096, 0, 4096, 0});
  CHECK(two.layers[0].attention.softcap == 50.0);
  CHECK(two.logit_softcap == 30.0);
  CHECK(two.embedding_scale == 8.0);
  const ModelSpec largest = spec_with("tiny-gemma2", "L=46 hd=24");
  CHECK(largest.layers[0].attention.scale == Approx(1.0 / std::sqrt(64.0 / 4.0)));
  const ModelSpec three = spec_with("tiny-gemma3", "L=7 attention.sliding_window_pattern= rope.freq_base_swa=");
  CHECK(windows_of(three) == std::vector<std::int64_t>{16, 16, 16, 16, 16, 0, 16});
  CHECK(three.ropes.at(1).base == 10000.0);
  CHECK(three.ropes.at(1).scaling == RopeScaling::kNone);
}

TEST_CASE("Gemma 3n shares K and V and is sparse where its readers say", "[model][families]") {
  const ModelSpec spec = spec_with("tiny-gemma3n",
                                   "L=25 attention.sliding_window_pattern= attention.shared_kv_layers= "
                                   "activation_sparsity_scale= final_logit_softcapping=");
  CHECK(spec.layers[19].attention.kv_source == -1);
  CHECK(spec.layers[20].attention.kv_source == 18);
  CHECK(spec.layers[24].attention.kv_source == 19);
  CHECK(spec.layers[24].attention.window == 0);
  CHECK(spec.layers[9].feed_forward.sparsity == 1.6448533535003662);
  CHECK_FALSE(spec.layers[10].feed_forward.sparsity);
  CHECK(spec.layers[0].attention.scale == 1.0);
  CHECK(spec.logit_softcap == 30.0);
}

TEST_CASE("Layers without positions are where the readers of each family have them", "[model][families]") {
  CHECK(rotating_layers(spec_with("tiny-smollm3", "L=9")) == "000-000-0");
  CHECK(rotating_layers(spec_with("tiny-cohere2", "L=5")) == "000-0");
  CHECK(rotating_layers(spec_with("tiny-llama4", "L=5")) == "000-0");
  CHECK(rotating_layers(spec_with("tiny-granitehybrid", "")) == "----");
  CHECK(rotating_layers(spec_with("tiny-smallthinker", "L=9")) == "-000-000-");
  CHECK(rotating_layers(spec_with("tiny-smallthinker", "L=4")) == "0000");
  CHECK(rotating_layers(spec_with("tiny-smallthinker", "L=9 win=")) == "000000000");
  CHECK(rotating_layers(spec_with("tiny-exaone4", "L=5 win=16")) == "00000");
}

TEST_CASE("Windows without a pattern have the period of their family", "[model][families]") {
  CHECK(windows_of(spec_with("tiny-gpt-oss", "L=3")) == std::vector<std::int64_t>{16, 0, 16});
  CHECK(windows_of(spec_with("tiny-olmo3", "L=5 attention.sliding_window_pattern=")) ==
        std::vector<std::int64_t>{16, 16, 16, 0, 16});
  CHECK(windows_of(spec_with("tiny-smallthinker", "L=5")) == std::vector<std::int64_t>{0, 4096, 4096, 4096, 0});
  CHECK(windows_of(spec_with("tiny-modern-bert", "L=4")) == std::vector<std::int64_t>{0, 16, 16, 0});
  CHECK(windows_of(spec_with("tiny-mistral", "L=2")) == std::vector<std::int64_t>{16, 16});
  const ModelSpec exaone = spec_with("tiny-exaone4", "L=64");
  CHECK(exaone.layers[0].attention.window == 4096);
  CHECK(exaone.layers[3].attention.window == 0);
  const ModelSpec llama = spec_with("tiny-llama4", "L=4");
  CHECK(llama.layers[0].attention.chunk == 8192);
  CHECK(llama.layers[3].attention.temperature == 0.1);
}

TEST_CASE("Scales and gates without keys are those of the readers", "[model][families]") {
  const ModelSpec minicpm = spec_with("tiny-minicpm", "L=4 d=64");
  CHECK(minicpm.embedding_scale == 12.0);
  CHECK(minicpm.residual_scale == Approx(0.7));
  CHECK(minicpm.logit_scale == Approx(0.25));
  using Gate = RouteOptions::Gate;
  const auto route_of = [](const std::string& name, const std::string& changes) {
    return spec_with(name, changes).layers.back().feed_forward.route;
  };
  CHECK(route_of("tiny-glm4moe", "").gate == Gate::kSigmoid);
  CHECK(route_of("tiny-gpt-oss", "").gate == Gate::kSoftmaxOfChosen);
  CHECK(route_of("tiny-minimax-m2", "expert_gating_func=").gate == Gate::kSigmoid);
  CHECK(route_of("tiny-deepseek2-lite", "").gate == Gate::kSoftmax);
  CHECK(route_of("tiny-deepseek2-lite", "L=47 v=154880").gate == Gate::kSigmoid);
  CHECK(route_of("tiny-mimo2", "expert_gating_func=1").gate == Gate::kSigmoid);
  CHECK_FALSE(route_of("tiny-qwen2moe", "").normalise);
  CHECK(route_of("tiny-qwen3moe", "expert_weights_norm=false").normalise);
  CHECK(route_of("tiny-smallthinker", "expert_weights_norm=false").normalise);
  CHECK(route_of("tiny-dots1", "expert_weights_scale=0.0").scale == 1.0F);
}

TEST_CASE("YaRN's magnitude without a log multiplier is 1 + 0.1 ln of the factor", "[model][families]") {
  const double plain = 1.0 + 0.1 * std::log(8.0);
  const ModelSpec olmo = spec_with("tiny-olmo3", "");
  CHECK(olmo.ropes[0].attention_factor == Approx(plain));
  CHECK(olmo.ropes[1].attention_factor == 1.0);
  const ModelSpec mistral = spec_with("tiny-mistral3", "rope.scaling.yarn_log_multiplier=");
  CHECK(mistral.ropes[0].attention_factor == Approx(plain));
  CHECK(mistral.ropes[0].beta_fast == 4.0);
  // Only some readers take these keys; files of other families must agree with the computation.
  CHECK_NOTHROW(spec_with("tiny-gpt-oss", "rope.scaling.yarn_beta_fast=32.0"));
  CHECK_THROWS_AS(spec_with("tiny-gpt-oss", "rope.scaling.yarn_beta_fast=4.0"), StartupError);
}

TEST_CASE("Heads of lightning attention decay by slopes that shrink from layer to layer", "[model][families]") {
  const ModelSpec spec = spec_with("tiny-bailing-linear", "h=6");
  const double slopes[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8};
  const double shares[] = {1.0 + 1e-5, 2.0 / 3 + 1e-5, 1.0 / 3 + 1e-5};
  for (std::size_t layer = 0; layer < std::size(shares); ++layer) {
    const std::vector<float>& decays = spec.layers.at(layer).recurrent.decays;
    REQUIRE(decays.size() == std::size(slopes));
    for (std::size_t head = 0; head < decays.size(); ++head)
      CHECK(decays[head] == Approx(-slopes[head] * shares[layer]));
  }
  CHECK(spec.layers.at(3).mixer == Mixer::kAttention);
}
