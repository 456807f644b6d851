#include "core/model/architectures/hf_config.h"
#include "core/model/architectures/generation_defaults.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/base/result.h"
#include "core/model/formats/json_file.h"

using Catch::Contains;
using namespace quire;
using nlohmann::json;

namespace {

json base_config() {
  return json::parse(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
                         "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 100, "hidden_act": "silu",
                         "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})");
}

ModelConfig with(const std::string& changes) {
  json config = base_config();
  config.merge_patch(json::parse(changes));
  return read_hf_config(config, "config.json");
}

}  // namespace

TEST_CASE("config.json gives a transformer's shape", "[hf]") {
  const ModelConfig config = with("{}");
  CHECK(config.architecture == "llama");
  CHECK(config.num_layers == 3);
  CHECK(config.num_kv_heads == 2);
  CHECK(config.head_dim == 16);
  CHECK(config.rope.style == RopeStyle::kHalf);
  CHECK(config.rope.rotary_dim == 16);
  CHECK(config.rope.base == 500000.0);
  CHECK(config.rms_eps == 1e-5);
  CHECK_FALSE(config.has_qk_norm);
  CHECK_FALSE(config.tied_head);
  CHECK(with(R"({"num_key_value_heads": null})").num_kv_heads == 4);
  CHECK(with(R"({"model_type": "qwen3"})").head_dim == 128);
  CHECK(with(R"({"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": true})").tied_head);
  CHECK(with(R"({"model_type": "qwen3"})").has_qk_norm);
}

TEST_CASE("config.json's RoPE scaling is read in its older and newer forms", "[hf]") {
  CHECK(with(R"({"rope_scaling": null})").rope.scaling == RopeScaling::kNone);
  CHECK(with(R"({"rope_scaling": {"rope_type": "default"}})").rope.scaling == RopeScaling::kNone);
  const RopeConfig linear = with(R"({"rope_scaling": {"type": "linear", "factor": 2.0}})").rope;
  CHECK(linear.scaling == RopeScaling::kLinear);
  CHECK(linear.factor == 2.0);
  const RopeConfig llama3 = with(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}})")
                                .rope;
  CHECK(llama3.scaling == RopeScaling::kLlama3);
  CHECK(llama3.original_context == 1024.0);
  const RopeConfig yarn = with(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
      "original_max_position_embeddings": 1024}})")
                              .rope;
  CHECK(yarn.scaling == RopeScaling::kYarn);
  CHECK(yarn.base == 1000000.0);
  CHECK(yarn.attention_factor == Approx(0.1 * std::log(4.0) + 1.0));
  CHECK(with(R"({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 1024}})").rope.factor == 4.0);
  CHECK(with(R"({"rope_scaling": {"type": "yarn", "factor": 2.0, "attention_factor": 0.5}})").rope.attention_factor ==
        0.5);
  CHECK(with(R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})").rope.scaling == RopeScaling::kNone);
  CHECK(with(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0, "partial_rotary_factor": 0.5}})")
            .rope.rotary_dim == 8);
}

TEST_CASE("A sliding window bounds the context, within which attention is exact", "[hf]") {
  const std::string window = R"("sliding_window": 512, "max_window_layers": 1)";
  CHECK(with(R"({"use_sliding_window": true, )" + window + "}").max_context == 512);
  CHECK(with(R"({"use_sliding_window": false, )" + window + "}").max_context == 4096);
  CHECK(with(R"({"layer_types": ["full_attention", "full_attention"], )" + window + "}").max_context == 4096);
}

TEST_CASE("config.json that Quire cannot honour is refused by name", "[hf]") {
  const auto require_refused = [](const std::string& changes, const std::string& reason) {
    CHECK_THROWS_WITH(with(changes), Catch::StartsWith("config.json") && Contains(reason));
  };
  require_refused(R"({"model_type": "gemma3"})", "model type 'gemma3' is not supported");
  require_refused(R"({"model_type": null})", "'model_type' is missing");
  require_refused(R"({"hidden_size": null})", "'hidden_size' is missing");
  require_refused(R"({"hidden_size": "64"})", "'hidden_size' is not a whole number");
  require_refused(R"({"vocab_size": 1.5})", "'vocab_size' is not a whole number");
  require_refused(R"({"hidden_act": "gelu"})", "activation 'gelu'");
  require_refused(R"({"num_local_experts": 8})", "mixture-of-experts");
  require_refused(R"({"rope_scaling": {"type": "longrope", "factor": 2.0}})", "RoPE type 'longrope'");
  require_refused(R"({"rope_scaling": {"type": "dynamic", "alpha": 2.0, "factor": 9.0}})", "RoPE parameter 'alpha'");
  require_refused(R"({"rope_scaling": {"type": "linear"}})", "rope_scaling: 'factor' is missing");
  require_refused(R"({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}})", "by layer type");
  require_refused(R"({"layer_types": ["chunked_attention"]})", "chunked_attention");
  require_refused(R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 2.0}})", "partial_rotary_factor");
}

TEST_CASE("Numbers that no model can have are refused before anything is sized by them", "[hf]") {
  const auto require_refused = [](const std::string& changes, const std::string& reason) {
    CHECK_THROWS_WITH(check_config(with(changes), "here"), Catch::StartsWith("here: ") && Contains(reason));
  };
  check_config(with("{}"), "here");
  require_refused(R"({"num_hidden_layers": 0})", "number of layers is 0");
  require_refused(R"({"num_hidden_layers": 1099511627776})", "number of layers");
  require_refused(R"({"num_attention_heads": 5, "head_dim": 16})", "5 heads cannot share 2");
  require_refused(R"({"head_dim": 0})", "head dimension is 0");
  require_refused(R"({"head_dim": 8192})", "head dimension is 8192");
  require_refused(R"({"hidden_size": -64, "head_dim": 16})", "embedding length");
  require_refused(R"({"rope_theta": 0.5})", "RoPE base");
  require_refused(R"({"rms_norm_eps": -1.0})", "epsilon");
  require_refused(R"({"rope_scaling": {"type": "linear", "factor": 0.0}})", "scaling factor");
  require_refused(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
      "high_freq_factor": 3.0}})",
                  "high_freq_factor is below");
}

TEST_CASE("defaults of a model's file are bounded as those of a request are", "[hf]") {
  const auto refused = [](const GenerationDefaults& defaults, const std::string& name) {
    CHECK_THROWS_WITH(checked_defaults(defaults, "m.gguf"),
                      Catch::StartsWith("m.gguf: its default of '" + name + "' is ") && Catch::Contains("correct"));
  };
  GenerationDefaults defaults;
  defaults.temperature = 0.7F;
  defaults.top_k = -1;
  CHECK(checked_defaults(defaults, "m.gguf").temperature == 0.7F);
  refused({.temperature = -1.0F}, "temperature");
  refused({.temperature = std::numeric_limits<float>::quiet_NaN()}, "temperature");
  refused({.top_p = 1.5F}, "top_p");
  refused({.top_k = -2}, "top_k");
  refused({.min_p = -0.1F}, "min_p");
  refused({.repetition_penalty = 0.0F}, "repetition penalty");
}

TEST_CASE("generation_config.json gives sampling defaults", "[hf]") {
  const auto defaults =
      read_hf_generation(json::parse(R"({"temperature": 0.6, "top_k": 20, "eos_token_id": [1, 2]})"), "g");
  CHECK(defaults.temperature == 0.6F);
  CHECK(defaults.top_k == 20);
  CHECK_FALSE(defaults.top_p);
  CHECK_THROWS_WITH(read_hf_generation(json::parse(R"({"top_p": "x"})"), "g"), "g: 'top_p' is not a number");
  CHECK_THROWS_AS(read_hf_generation(json::parse(R"({"top_k": 1e30})"), "g"), StartupError);
}

TEST_CASE("A chat template is read from each of its published forms", "[hf]") {
  const auto read = [](const char* text) { return read_hf_chat_template(json::parse(text), "t"); };
  CHECK(read(R"({"chat_template": "A"})") == "A");
  CHECK(read(R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})") ==
        "D");
  CHECK(read("{}").empty());
  CHECK_THROWS_WITH(read(R"({"chat_template": 5})"), Contains("neither a string nor a list"));
}

TEST_CASE("JSON is refused where keys repeat or nesting has no end", "[hf]") {
  CHECK_THROWS_WITH(parse_json_object(R"({"a":{"b":1,"b":2}})", "f", 8), "f: the key 'b' occurs twice");
  CHECK_NOTHROW(parse_json_object(R"({"a":{"b":1},"c":{"b":2}})", "f", 8));
  CHECK_THROWS_WITH(parse_json_object(std::string(100000, '['), "f", 8), Contains("nested deeper than 8"));
  CHECK_THROWS_WITH(parse_json_object("{\"a\": \x01}", "f", 8), "f: is not valid JSON at byte 7");
}

TEST_CASE("a pooling configuration chooses one mode that there is", "[hf]") {
  const auto pooling = [](const char* text) { return read_hf_pooling(json::parse(text), "p"); };
  CHECK(pooling(
            R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})") ==
        Pooling::kCls);
  CHECK(pooling(R"({"pooling_mode_mean_tokens": true})") == Pooling::kMean);
  CHECK(pooling(R"({"pooling_mode_lasttoken": true})") == Pooling::kLast);
  CHECK(pooling(R"({"pooling_mode": "mean"})") == Pooling::kMean);
  CHECK_THROWS_WITH(pooling("{}"), Contains("no supported pooling mode"));
  CHECK_THROWS_WITH(pooling(R"({"pooling_mode_max_tokens": true})"), Contains("pooling_mode_max_tokens"));
  CHECK_THROWS_WITH(pooling(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})"),
                    Contains("joined"));
}
