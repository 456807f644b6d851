#include "core/model/architectures/hf_config.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/base/result.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/formats/hf/json_file.h"

using Catch::Contains;
using namespace quire;
using nlohmann::json;

namespace {

json base_config() {
  return json::parse(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
                         "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 100, "hidden_act": "silu",
                         "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})");
}

struct Read {
  ModelSpec spec;
  std::vector<std::string> warnings;
};

// Reads with a table that has no layers: their tensors do not matter here.
Read read(const std::string& changes, const SpecWishes& wishes = {}) {
  json config = base_config();
  config.merge_patch(json::parse(changes));
  StoredTensor embedding;
  embedding.name = "model.embed_tokens.weight";
  embedding.type = DType::kF32;
  embedding.shape = {100, config["hidden_size"].is_number_integer() ? config["hidden_size"].get<std::int64_t>() : 64};
  StoredTensor head = embedding;
  head.name = "lm_head.weight";
  TensorTable tensors("model", {embedding, head});
  Read out{read_hf_spec(config, "config.json", tensors, wishes), {}};
  out.warnings = tensors.warnings();
  return out;
}

ModelConfig with(const std::string& changes) {
  const ModelSpec spec = read(changes).spec;
  ModelConfig config = spec.config;
  config.rope = spec.ropes.at(0);
  config.has_qk_norm = spec.layers.at(0).attention.qk_norm == QkNorm::kPerHead;
  return config;
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
  RopeConfig wanted;
  wanted.rotary_dim = 16;
  wanted.base = 500000.0;
  wanted.scaling = RopeScaling::kLlama3;
  wanted.factor = 8.0;
  wanted.original_context = 1024.0;
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(rope_frequencies(llama3).inv_freq.at(i) == Approx(rope_frequencies(wanted).inv_freq.at(i)));
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
  const std::string window = R"("model_type": "qwen2", "sliding_window": 512, "max_window_layers": 1)";
  CHECK(with(R"({"use_sliding_window": true, )" + window + "}").max_context == 512);
  CHECK(with(R"({"use_sliding_window": false, )" + window + "}").max_context == 4096);
  CHECK(
      with(R"({"layer_types": ["full_attention", "full_attention", "full_attention"], )" + window + "}").max_context ==
      4096);
}

TEST_CASE("config.json that Quire cannot honour is refused by name", "[hf]") {
  const auto require_refused = [](const std::string& changes, const std::string& reason) {
    CHECK_THROWS_WITH(with(changes), Catch::StartsWith("config.json") && Contains(reason));
  };
  require_refused(R"({"model_type": "gemma3_txt"})", "model type 'gemma3_txt' is not supported");
  require_refused(R"({"model_type": null})", "'model_type' is missing");
  require_refused(R"({"hidden_size": null})", "'hidden_size' is missing");
  require_refused(R"({"hidden_size": "64"})", "'hidden_size' is not a whole number");
  require_refused(R"({"hidden_act": "gelu"})", "activation 'gelu'");
  require_refused(R"({"num_local_experts": 8})", "'num_local_experts' is 8; only 0 is supported");
  require_refused(R"({"rope_scaling": {"type": "spiral", "factor": 2.0}})", "RoPE type 'spiral'");
  require_refused(R"({"rope_scaling": {"type": "dynamic", "alpha": 2.0, "factor": 9.0}})", "RoPE parameter 'alpha'");
  require_refused(R"({"rope_scaling": {"type": "linear"}})", "rope_scaling: 'factor' is missing");
  require_refused(R"({"layer_types": ["spiral_attention"]})", "spiral_attention");
}

TEST_CASE("Numbers that no model can have are refused before anything is sized by them", "[hf]") {
  const auto require_refused = [](const std::string& changes, const std::string& reason) {
    CHECK_THROWS_WITH(read(changes), Contains(reason));
  };
  require_refused(R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 2.0}})", "rotated dimensions");
  require_refused(R"({"num_hidden_layers": 0})", "'num_hidden_layers' is not between 1 and 4096");
  require_refused(R"({"num_hidden_layers": 1099511627776})", "'num_hidden_layers'");
  require_refused(R"({"num_attention_heads": 5, "head_dim": 16})", "5 heads cannot share 2");
  require_refused(R"({"head_dim": 0})", "head dimension is 0");
  require_refused(R"({"head_dim": 8192})", "head dimension is 8192");
  require_refused(R"({"hidden_size": -64, "head_dim": 16})", "embedding length");
  require_refused(R"({"rope_theta": 0.5})", "RoPE base");
  require_refused(R"({"rms_norm_eps": -1.0})", "epsilon");
  require_refused(R"({"rope_scaling": {"type": "linear", "factor": 0.0}})", "'factor' is not above 0");
  require_refused(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
      "high_freq_factor": 3.0}})",
                  "high_freq_factor is below");
}

TEST_CASE("rope_theta counts wherever the file has it, in every class", "[hf]") {
  for (const HfFamily& family : hf_families()) {
    const auto translated = [&](const std::string& rope) {
      json config = base_config();
      config.merge_patch(json{{"model_type", family.model_type}});
      config.erase("rope_theta");
      config.merge_patch(json::parse(rope));
      const json whole = with_class_defaults(config, family);
      TensorTable tensors("here", {});
      const auto out = translate_hf_config(whole, JsonObject(whole, "here"), family, tensors);
      return out->get_float(std::string(*out->get_string("general.architecture")) + ".rope.freq_base");
    };
    INFO(family.model_type);
    try {
      translated("{}");
    } catch (const StartupError&) {
      continue;  // the class needs other sizes: its rotation is read by the same function
    }
    CHECK(translated(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7e5}})") == 7e5);
    if (family.defaults.find("rope_parameters") == std::string_view::npos)
      CHECK(translated(R"({"rope_scaling": {"rope_type": "default", "rope_theta": 7e5}})") == 7e5);
  }
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    const std::string named = R"({"model_type": ")" + std::string(type) + R"(", "rope_theta": )";
    const double beside = with(named + "7e5}").rope.base;
    CHECK(beside == 7e5);
    CHECK(with(named + R"(null, "rope_scaling": {"rope_type": "default", "rope_theta": 7e5}})").rope.base == beside);
    CHECK(with(named + R"(null, "rope_parameters": {"rope_theta": 7e5}})").rope.base == beside);
  }
}

TEST_CASE("YaRN and linear scaling extend the context as the file says", "[hf]") {
  const auto context = [](const char* scaling) {
    return with(R"({"rope_scaling": )" + std::string(scaling) + "}").max_context;
  };
  CHECK(context(R"({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096})") == 16384);
  CHECK(context(R"({"type": "yarn", "factor": 4.0})") == 16384);
  CHECK(context(R"({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})") == 4096);
  CHECK(context(R"({"type": "linear", "factor": 2.5})") == 10240);
  CHECK(context(R"({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512})") == 4096);
  CHECK(context(R"({"rope_type": "default"})") == 4096);
}

TEST_CASE("A context that Quire does not compute gives a warning", "[hf]") {
  CHECK(read("{}").warnings.empty());
  const Read dynamic = read(R"({"rope_scaling": {"type": "dynamic", "factor": 4.0}})");
  CHECK(dynamic.spec.config.max_context == 4096);
  REQUIRE(dynamic.warnings.size() == 1);
  CHECK_THAT(dynamic.warnings[0], Contains("'dynamic' scaling") && Contains("4096"));
  CHECK(read(R"({"rope_scaling": {"type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 1024}})")
            .spec.config.max_context == 1024);
  const Read asked = read("{}", {.served_context = 9000});
  REQUIRE(asked.warnings.size() == 1);
  CHECK_THAT(asked.warnings[0], Contains("asks for 9000 tokens") && Contains("has 4096"));
  const Read window =
      read(R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 512, "max_window_layers": 1})");
  REQUIRE(window.warnings.size() == 1);
  CHECK_THAT(window.warnings[0], Contains("the window's 512 tokens, not 4096"));
}

TEST_CASE("Keys of published files that change nothing are accepted", "[hf]") {
  const char* const silent[] = {R"({"use_cache": true})", R"({"torch_dtype": "bfloat16"})", R"({"dtype": "float16"})",
                                R"({"rope_interleaved": false})", R"({"a_new_switch": false, "another": null})"};
  for (const char* key : silent)
    CHECK(read(key).warnings.empty());
  const char* const noted[] = {R"({"is_llama_config": true})", R"({"max_sequence_length": 2048})",
                               R"({"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}})",
                               R"({"_a_private_note": 3})", R"({"training_steps": 1000})"};
  for (const char* key : noted) {
    const auto warnings = read(key).warnings;
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], Contains(json::parse(key).begin().key()) && Contains("is ignored"));
  }
}

TEST_CASE("A key that may change what is computed is refused, and ignored only on demand", "[hf]") {
  const char* const unknown = R"({"attention_temperature": 0.5})";
  CHECK_THROWS_WITH(read(unknown), Contains("the key 'attention_temperature' is not supported") &&
                                       Contains("model.ignore_unknown_keys"));
  CHECK_THROWS_WITH(read(R"({"rope_interleaved": true})"), Contains("'rope_interleaved'"));
  const Read ignored = read(unknown, {.ignore_unknown_keys = true});
  CHECK(ignored.spec.ignore_unknown_keys);
  REQUIRE(ignored.warnings.size() == 1);
  CHECK_THAT(ignored.warnings[0], Contains("'attention_temperature' is not known and is ignored"));
}

TEST_CASE("generation_config.json gives sampling defaults within a request's ranges", "[hf]") {
  TensorTable tensors("model", {});
  const auto read_defaults = [&](const char* text) { return read_hf_generation(json::parse(text), "g", tensors); };
  const auto defaults = read_defaults(R"({"temperature": 0.6, "top_k": 20, "eos_token_id": [1, 2]})");
  CHECK(defaults.temperature == 0.6F);
  CHECK(defaults.top_k == 20);
  CHECK_FALSE(defaults.top_p);
  CHECK_THROWS_WITH(read_defaults(R"({"top_p": "x"})"), "g: 'top_p' is not a number");
  CHECK_THROWS_AS(read_defaults(R"({"top_k": 1e30})"), StartupError);
  CHECK_THROWS_WITH(read_defaults(R"({"temperature": -0.1})"),
                    Contains("'temperature' is -0.1, not between 0 and 100"));
  CHECK_THROWS_WITH(read_defaults(R"({"top_p": 1.5})"), Contains("'top_p' is 1.5"));
  CHECK_THROWS_WITH(read_defaults(R"({"min_p": 2})"), Contains("'min_p' is 2"));
  CHECK_THROWS_WITH(read_defaults(R"({"top_k": -7})"), Contains("'top_k' is -7"));
  CHECK_THROWS_WITH(read_defaults(R"({"repetition_penalty": 0})"), Contains("'repetition_penalty' is 0"));
  CHECK(tensors.warnings().empty());
  read_defaults(R"({"num_beams": 1, "no_repeat_ngram_size": 3})");
  REQUIRE(tensors.warnings().size() == 1);
  CHECK_THAT(tensors.warnings()[0], Contains("'no_repeat_ngram_size' is not applied"));
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
