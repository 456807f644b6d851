// Translation of Hugging Face configurations into GGUF's keys, including missing and unknown keys.
#include "core/model/architectures/hf_families.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/result.h"

using namespace quire;
using nlohmann::json;

namespace {

std::shared_ptr<const GgufFile> translated(const std::string& model_type, const std::string& config) {
  const HfFamily* family = find_hf_family(model_type);
  REQUIRE(family != nullptr);
  const json raw = with_class_defaults(json::parse(config), *family);
  const JsonObject object(raw, "here");
  TensorTable tensors("here", {});
  return translate_hf_config(raw, object, *family, tensors);
}

constexpr const char* kMistral =
    R"({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_scaling": )";

}  // namespace

TEST_CASE("A configuration that leaves its class's defaults out has them", "[model][hf]") {
  const auto gemma = translated("gemma3_text", R"({"hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024})");
  CHECK(gemma->get_int("gemma3.attention.head_count") == 8);
  CHECK(gemma->get_int("gemma3.attention.key_length") == 256);
  CHECK(gemma->get_float("gemma3.rope.freq_base") == 1e6);
  CHECK(gemma->get_float("gemma3.rope.freq_base_swa") == 1e4);
  CHECK(gemma->get_float("gemma3.attention.scale") == 1.0 / 16.0);
  CHECK(gemma->get_int("gemma3.attention.sliding_window") == 1024);
}

TEST_CASE("A window that Mistral's class has by default counts where the file says nothing", "[model][hf]") {
  const std::string sizes = kMistral + std::string("null");
  CHECK(translated("mistral", sizes + "}")->get_int("llama.attention.sliding_window") == 4096);
  CHECK_FALSE(translated("mistral", sizes + R"(, "sliding_window": null})")->get_int("llama.attention.sliding_window"));
}

TEST_CASE("Gemma 4's layers are listed by its class where the file does not", "[model][hf]") {
  const auto gemma = translated("gemma4_text", R"({"num_hidden_layers": 8, "num_key_value_heads": 4,
      "attention_k_eq_v": true, "num_global_key_value_heads": 2})");
  const auto& heads = std::get<std::vector<std::int64_t>>(gemma->metadata().at("gemma4.attention.head_count_kv"));
  CHECK(heads == std::vector<std::int64_t>{4, 4, 4, 4, 4, 2, 4, 2});
  CHECK(gemma->get_float("gemma4.final_logit_softcapping") == 0.0);
  CHECK(gemma->get_int("gemma4.attention.key_length") == 512);
  CHECK_THROWS_WITH(translated("gemma4_text", R"({"use_bidirectional_attention": "all"})"),
                    Catch::Contains("'use_bidirectional_attention' of text"));
}

TEST_CASE("The share of a sparse gate becomes a number of standard deviations", "[model][hf]") {
  const auto gemma = translated("gemma3n_text", R"({"num_hidden_layers": 3, "num_kv_shared_layers": 0,
      "activation_sparsity_pattern": [0.95, 0.5, 0.0]})");
  const auto& scale = std::get<std::vector<double>>(gemma->metadata().at("gemma3n.activation_sparsity_scale"));
  CHECK(scale.at(0) == Approx(1.6448536269514722));
  CHECK(scale.at(1) == Approx(0.0).margin(1e-12));
  CHECK(std::isinf(scale.at(2)));
}

TEST_CASE("Null switches off what a class has by default", "[model][hf]") {
  const auto off = translated("gemma2", R"({"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
      "final_logit_softcapping": null})");
  CHECK(off->get_float("gemma2.final_logit_softcapping") == 0.0);
  CHECK_FALSE(off->get_float("gemma2.attn_logit_softcapping"));
}

TEST_CASE("A period stands for the layers' kinds where none are listed", "[model][hf]") {
  const std::string sizes = R"("num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96)";
  CHECK(translated("gemma3_text", "{" + sizes + R"(, "sliding_window_pattern": 2})")
            ->get_int("gemma3.attention.sliding_window_pattern") == 2);
}

TEST_CASE("LongRoPE's attention factor follows from the contexts", "[model][hf]") {
  const auto phi = translated("phi3", R"({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
      "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_scaling": {"type": "su",
      "short_factor": [1.0], "long_factor": [1.0]}})");
  const double factor = std::sqrt(1.0 + std::log(32.0) / std::log(4096.0));
  CHECK(phi->get_float("phi3.rope.scaling.attn_factor").value() == Approx(factor));
  CHECK(phi->get_int("phi3.rope.scaling.original_context_length") == 4096);
}

TEST_CASE("PhiMoE states LongRoPE's factor for short and long contexts", "[model][hf]") {
  const std::string config = R"({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
      "intermediate_size": 96, "num_experts_per_tok": 2, "max_position_embeddings": 131072,
      "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 4096, "short_factor": [1.0],
      "long_factor": [1.0], "short_mscale": 1.25, "long_mscale": )";
  CHECK(translated("phimoe", config + "1.25}}")->get_float("phimoe.rope.scaling.attn_factor") == 1.25);
  CHECK_THROWS_WITH(translated("phimoe", config + "1.5}}"), Catch::Contains("'long_mscale'"));
}

TEST_CASE("A rotation that is not understood is refused", "[model][hf]") {
  const auto with = [](const std::string& scaling) { return translated("mistral", kMistral + scaling + "}"); };
  CHECK_THROWS_WITH(with(R"({"rope_type": "yarn", "factor": 2.0, "alpha": 1000})"),
                    Catch::Contains("the RoPE parameter 'alpha' is not supported"));
  CHECK_THROWS_WITH(with(R"({"rope_type": "spiral", "factor": 2.0})"),
                    Catch::Contains("the RoPE type 'spiral' is not supported"));
  CHECK_THROWS_WITH(with(R"({"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_type": "linear"}})"),
                    Catch::Contains("a scaled rotation of sliding layers is not supported"));
  CHECK_NOTHROW(with(R"({"rope_type": "yarn", "factor": 2.0})"));
}

TEST_CASE("The refusal of an unknown model type names the nearest known one", "[model][hf]") {
  CHECK(nearest_hf_family("qwen3_6_text") == "qwen3_5_text");
  CHECK(nearest_hf_family("gemma5_text") == "gemma3_text");
  CHECK(nearest_hf_family("lama") == "llama");
}
