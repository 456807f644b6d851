#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_config.h"
#include "tests/support/material.h"

using namespace quire;
using nlohmann::json;

namespace {

// The values of a version 1 .npy file of f32.
std::vector<float> read_npy(const std::filesystem::path& path) {
  const std::string bytes = quire::test::read_file(path);
  std::uint16_t header_size = 0;
  std::memcpy(&header_size, bytes.data() + 8, sizeof header_size);
  const std::string data = bytes.substr(10 + header_size);
  std::vector<float> values(data.size() / sizeof(float));
  std::memcpy(values.data(), data.data(), values.size() * sizeof(float));
  return values;
}

// The parameters as a config.json holds them.
RopeConfig rope_of(const json& args) {
  json parameters = args.at("rope_parameters");
  const double head_size = args.at("head_size");
  parameters["partial_rotary_factor"] = parameters.at("rope_dim").get<double>() / head_size;
  parameters.erase("rope_dim");
  const json config{{"model_type", "llama"},         {"hidden_size", 64},
                    {"intermediate_size", 64},       {"num_attention_heads", 2},
                    {"num_hidden_layers", 1},        {"vocab_size", 8},
                    {"tie_word_embeddings", true},   {"head_dim", args["head_size"]},
                    {"rope_parameters", parameters}, {"max_position_embeddings", args.at("max_position")}};
  StoredTensor embedding;
  embedding.name = "model.embed_tokens.weight";
  embedding.shape = {8, 64};
  TensorTable tensors("model", {embedding});
  return read_hf_spec(config, "config.json", tensors).ropes.at(0);
}

}  // namespace

TEST_CASE("RoPE frequencies are those of published layers", "[rope]") {
  for (const char* name : {"long_rope_llama3_neox_f32_bands", "long_rope_llama3_neox_f32_equal_factors",
                           "long_rope_yarn_neox_f32_truncate"}) {
    QUIRE_REQUIRE_MATERIAL(folder, std::string("numeric-goldens/") + name);
    INFO(name);
    const RopeConfig rope = rope_of(json::parse(quire::test::read_file(folder / "manifest.json")).at("args"));
    const RopeFrequencies frequencies = rope_frequencies(rope);
    const std::vector<float> expected = read_npy(folder / "cos_sin_cache.npy");  // [position][all cosines, all sines]
    const std::size_t half = frequencies.inv_freq.size();
    REQUIRE(expected.size() % (2 * half) == 0);
    REQUIRE(expected.size() / (2 * half) >= 128);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double angle = static_cast<double>(i / (2 * half)) * frequencies.inv_freq[i % half];
      const double value = i % (2 * half) < half ? std::cos(angle) : std::sin(angle);
      REQUIRE(static_cast<double>(expected[i]) ==
              Approx(static_cast<double>(frequencies.scale) * value).margin(2e-5).epsilon(0));
    }
  }
}
