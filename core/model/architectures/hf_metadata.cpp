// A config.json under GGUF's keys.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/formats/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

class HfMetadata final : public GgufFile {
 public:
  explicit HfMetadata(std::string_view architecture) : prefix_(std::string(architecture) + ".") {
    metadata_["general.architecture"] = architecture;
  }
  void set(std::string_view key, GgufValue value) {
    metadata_[names_.emplace_back(prefix_ + std::string(key))] = std::move(value);
  }
  void set_text(std::string_view key, std::string value) { set(key, std::string_view(names_.emplace_back(value))); }

  const std::map<std::string_view, GgufValue>& metadata() const override { return metadata_; }
  const std::vector<GgufTensor>& tensors() const override { return tensors_; }
  const GgufTensor* find_tensor(std::string_view) const override { return nullptr; }
  std::uint32_t version() const override { return 0; }
  std::uint64_t file_bytes() const override { return 0; }
  void release(std::span<const std::byte>) const override {}

 private:
  std::string prefix_;
  std::deque<std::string> names_;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

struct KeyPair {
  const char* hf;
  const char* gguf;
};

constexpr KeyPair kIntegers[] = {
    {"num_hidden_layers", "block_count"},
    {"hidden_size", "embedding_length"},
    {"max_position_embeddings", "context_length"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"head_dim", "attention.value_length"},
    {"num_experts_per_tok", "expert_used_count"},
    {"top_k_experts", "expert_used_count"},
    {"num_local_experts", "expert_count"},
    {"num_experts", "expert_count"},
    {"n_routed_experts", "expert_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"n_group", "expert_group_count"},
    {"topk_group", "expert_group_used_count"},
    {"first_k_dense_replace", "leading_dense_block_count"},
    {"num_dense_layers", "leading_dense_block_count"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"q_lora_rank", "attention.q_lora_rank"},
    {"conv_L_cache", "shortconv.l_cache"},
    {"linear_conv_kernel_dim", "ssm.conv_kernel"},
    {"linear_key_head_dim", "ssm.state_size"},
    {"linear_num_key_heads", "ssm.group_count"},
    {"linear_num_value_heads", "ssm.time_step_rank"},
    {"full_attention_interval", "full_attention_interval"},
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
};

constexpr KeyPair kNumbers[] = {
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"norm_eps", "attention.layer_norm_rms_epsilon"},
    {"layer_norm_eps", "attention.layer_norm_epsilon"},
    {"norm_epsilon", "attention.layer_norm_epsilon"},
    {"rope_theta", "rope.freq_base"},
    {"rope_local_base_freq", "rope.freq_base_swa"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"routed_scaling_factor", "expert_weights_scale"},
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"attention_multiplier", "attention.scale"},
    {"logits_scaling", "logit_scale"},
    {"logit_scale", "logit_scale"},
};

class HfTranslator {
 public:
  HfTranslator(const json& config, const HfFamily& family, const std::string& where)
      : raw_(config),
        config_(config, where),
        family_(family),
        out_(std::make_shared<HfMetadata>(architecture(config, family))) {}

  std::shared_ptr<const GgufFile> translate() {
    refuse_activation();
    for (const KeyPair& pair : kIntegers) {
      if (const auto value = config_.integer(pair.hf)) set_integer(pair.gguf, *value);
    }
    for (const KeyPair& pair : kNumbers) {
      if (const auto value = config_.number(pair.hf)) out_->set(pair.gguf, *value);
    }
    if (const auto flag = config_.boolean("norm_topk_prob")) out_->set("expert_weights_norm", *flag);
    // Null switches off what the class has by default.
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (raw_.contains(key) && raw_.at(key).is_null()) out_->set(key, 0.0);
    }
    if (const auto share = config_.number("query_pre_attn_scalar"); share && *share > 0.0)
      out_->set("attention.scale", 1.0 / std::sqrt(*share));
    out_->set("translated", true);
    read_rope();
    read_layer_types();
    read_experts();
    read_shapes();
    return out_;
  }

  static std::string_view architecture(const json& config, const HfFamily& family) {
    const auto found = config.find("use_bidirectional_attention");
    const bool both = found != config.end() && found->is_boolean() && found->get<bool>();
    return both && family.architecture == "gemma3" ? "gemma-embedding" : family.architecture;
  }

 private:
  void set_integer(std::string_view key, std::int64_t value) { out_->set(key, GgufValue(value)); }

  void refuse_activation() const {
    std::string name = config_.text("hidden_activation").value_or("");
    if (name.empty()) name = config_.text("hidden_act").value_or(family_.uses_gelu ? "gelu" : "silu");
    const bool fits = family_.uses_gelu ? name.starts_with("gelu") : name == "silu";
    if (!fits) config_.fail(fmt::format("the activation '{}' is not supported", printable(name)));
  }

  void read_rope() {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const auto scaling = config_.object(key);
      if (!scaling) continue;
      if (const auto full = scaling->object("full_attention")) {
        read_rope_parameters(raw_.at(key).at("full_attention"), *full);
        read_local_rope(*scaling);
        continue;
      }
      read_rope_parameters(*config_.find(key), *scaling);
    }
    set_integer("rope.dimension_count", rotary_dim_of(config_));
  }

  void read_rope_parameters(const json& raw, const JsonObject& scaling) {
    refuse_unknown_rope_keys(raw, scaling);
    if (const auto base = scaling.number("rope_theta")) out_->set("rope.freq_base", *base);
    read_scaling(scaling);
  }

  void read_local_rope(const JsonObject& by_type) {
    const auto local = by_type.object("sliding_attention");
    if (!local) return;
    if (const auto base = local->number("rope_theta")) out_->set("rope.freq_base_swa", *base);
    if (rope_type_of(*local) != "default") local->fail("a scaled rotation of sliding layers is not supported");
  }

  void read_scaling(const JsonObject& scaling) {
    const std::string type = rope_type_of(scaling);
    // Dynamic scaling changes nothing up to the trained context, which is the limit. Llama 3's and the proportional
    // one come as frequency factors.
    if (type == "default" || type == "dynamic" || type == "llama3" || type == "proportional") return;
    if (type == "longrope") return read_long_rope(scaling);
    if (type != "yarn" && type != "linear") {
      scaling.fail(fmt::format("the RoPE type '{}' is not supported (default, linear, dynamic, llama3, yarn, longrope)",
                               printable(type)));
    }
    const double context = config_.number("max_position_embeddings").value_or(0.0);
    const double original = scaling.number("original_max_position_embeddings").value_or(context);
    const double factor = scaling.number("factor").value_or(original > 0.0 ? context / original : 1.0);
    out_->set_text("rope.scaling.type", type);
    out_->set("rope.scaling.factor", factor);
    if (type != "yarn") return;
    out_->set("rope.scaling.original_context_length", original);
    read_yarn(scaling, factor);
  }

  void read_yarn(const JsonObject& scaling, double factor) {
    for (const char* key : {"beta_fast", "beta_slow"}) {
      if (const auto value = scaling.number(key)) out_->set(std::string("rope.scaling.yarn_") + key, *value);
    }
    out_->set("rope.scaling.truncate", scaling.boolean("truncate").value_or(true));
    // GGUF's factor multiplies YaRN's own.
    if (const auto given = scaling.number("attention_factor"))
      out_->set("rope.scaling.attn_factor", *given / yarn_attention_factor(factor));
    const double all = scaling.number("mscale_all_dim").value_or(0.0);
    const bool is_deepseek = family_.architecture == "deepseek2";
    const double wanted = is_deepseek ? all : 1.0;
    if (all != 0.0 && scaling.number("mscale").value_or(wanted) != wanted)
      scaling.fail(fmt::format("an 'mscale' other than {} is not supported", wanted));
    if (all != 0.0) out_->set("rope.scaling.yarn_log_multiplier", is_deepseek ? all * 0.1 : all);
    if (const auto beta = scaling.number("llama_4_scaling_beta")) out_->set("attention.temperature_scale", *beta);
  }

  void read_long_rope(const JsonObject& scaling) {
    const double context = config_.number("max_position_embeddings").value_or(0.0);
    double original = scaling.number("original_max_position_embeddings").value_or(context);
    original = config_.number("original_max_position_embeddings").value_or(original);
    out_->set("rope.scaling.original_context_length", original);
    for (const char* key : {"short_mscale", "long_mscale"}) {
      if (scaling.has(key)) scaling.fail(fmt::format("the RoPE parameter '{}' is not supported", key));
    }
    // Longer contexts sharpen the softmax: sqrt(1 + ln(factor) / ln(original)).
    double factor = scaling.number("factor").value_or(original > 0.0 ? context / original : 1.0);
    factor = factor > 1.0 && original > 1.0 ? std::sqrt(1.0 + std::log(factor) / std::log(original)) : 1.0;
    out_->set("rope.scaling.attn_factor", scaling.number("attention_factor").value_or(factor));
  }

  // What each layer is, where the configuration lists it.
  void read_layer_types() {
    const bool slides = config_.boolean("use_sliding_window").value_or(true);
    const auto window = config_.integer("sliding_window");
    if (window && slides) set_integer("attention.sliding_window", *window);
    const json* types = config_.find("layer_types");
    if (types == nullptr) {
      for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
        if (const auto period = config_.integer(key)) set_integer("attention.sliding_window_pattern", *period);
      }
      return;
    }
    if (!types->is_array()) config_.fail("'layer_types' is not an array");
    std::vector<bool> sliding;
    std::vector<bool> recurrent;
    std::vector<std::int64_t> kv_heads;
    const auto heads = config_.integer("num_key_value_heads").value_or(1);
    for (const json& type : *types) {
      sliding.push_back(type == "sliding_attention");
      recurrent.push_back(type == "linear_attention");
      kv_heads.push_back(type == "conv" ? 0 : heads);
      constexpr std::array<std::string_view, 4> kTypes{"sliding_attention", "linear_attention", "conv",
                                                       "full_attention"};
      if (!type.is_string() || std::ranges::find(kTypes, type.get<std::string>()) == kTypes.end())
        config_.fail(fmt::format("the layer type {} is not supported", printable(type.dump())));
    }
    sliding_ = sliding;
    if (std::ranges::find(sliding, true) != sliding.end()) out_->set("attention.sliding_window_pattern", sliding);
    if (std::ranges::find(recurrent, true) != recurrent.end()) out_->set("attention.recurrent_layers", recurrent);
    if (std::ranges::find(kv_heads, 0) != kv_heads.end()) out_->set("attention.head_count_kv", kv_heads);
  }

  void read_experts() {
    const std::string scoring = config_.text("scoring_func").value_or("");
    const std::string_view name = family_.architecture;
    if (scoring == "sigmoid" || name == "glm4moe" || name == "lfm2moe" || name == "dots1") {
      set_integer("expert_gating_func", 2);
    } else if (!scoring.empty() && scoring != "softmax") {
      config_.fail(fmt::format("the routing function '{}' is not supported", printable(scoring)));
    }
    if (config_.text("topk_method").value_or("") == "group_limited_greedy")
      config_.fail("the routing method 'group_limited_greedy' is not supported");
    if (const auto sparse = config_.integer("decoder_sparse_step"); sparse && *sparse != 1)
      config_.fail("a 'decoder_sparse_step' other than 1 is not supported");
    if (name != "gpt-oss") return;
    set_integer("expert_feed_forward_length", config_.required_integer("intermediate_size"));
    if (config_.number("swiglu_limit").value_or(7.0) != 7.0)
      config_.fail("a 'swiglu_limit' other than 7 is not supported");
  }

  // Sizes that are sums or products of others.
  void read_shapes() {
    if (const auto nope = config_.integer("qk_nope_head_dim")) {
      set_integer("attention.key_length_mla", *nope + config_.required_integer("qk_rope_head_dim"));
      set_integer("attention.value_length_mla", config_.required_integer("v_head_dim"));
      set_integer("attention.key_length", *nope + config_.required_integer("qk_rope_head_dim"));
      set_integer("attention.value_length", config_.required_integer("v_head_dim"));
    }
    if (const auto heads = config_.integer("linear_num_value_heads")) {
      set_integer("ssm.inner_size", *heads * config_.required_integer("linear_value_head_dim"));
      out_->set("ssm.grouped_heads", true);
    }
    if (config_.find("max_position_embeddings") == nullptr) config_.fail("'max_position_embeddings' is missing");
    if (family_.architecture == "gemma4") read_gemma4();
    if (family_.architecture == "bert") out_->set("attention.causal", false);
  }

  void read_gemma4() {
    const auto local = config_.required_integer("head_dim");
    const auto global = config_.integer("global_head_dim").value_or(local);
    set_integer("attention.key_length", global);
    set_integer("attention.value_length", global);
    set_integer("attention.key_length_swa", local);
    set_integer("attention.value_length_swa", local);
    set_integer("rope.dimension_count", global);
    set_integer("rope.dimension_count_swa", local);
    const auto heads = config_.integer("num_key_value_heads").value_or(1);
    const auto global_heads = config_.integer("num_global_key_value_heads").value_or(heads);
    const auto size = config_.required_integer("intermediate_size");
    const auto shared = config_.integer("num_kv_shared_layers").value_or(0);
    const bool doubled = config_.boolean("use_double_wide_mlp").value_or(false);
    std::vector<std::int64_t> kv_heads;
    std::vector<std::int64_t> sizes;
    const auto num_layers = std::ssize(sliding_);
    for (std::int64_t i = 0; i < num_layers; ++i) {
      kv_heads.push_back(sliding_[static_cast<std::size_t>(i)] ? heads : global_heads);
      sizes.push_back(doubled && i >= num_layers - shared ? 2 * size : size);
    }
    out_->set("attention.head_count_kv", kv_heads);
    out_->set("feed_forward_length", sizes);
  }

  const json& raw_;
  JsonObject config_;
  const HfFamily& family_;
  std::shared_ptr<HfMetadata> out_;
  std::vector<bool> sliding_;
};

}  // namespace

std::string rope_type_of(const JsonObject& scaling) {
  std::string type = scaling.text("rope_type").value_or("");
  if (type.empty()) type = scaling.text("type").value_or("default");
  return type == "su" ? "longrope" : type;
}

std::int64_t rotary_dim_of(const JsonObject& config) {
  double rotated = config.number("partial_rotary_factor").value_or(1.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = config.object(key);
    if (scaling) rotated = scaling->number("partial_rotary_factor").value_or(rotated);
  }
  const std::int64_t heads = config.integer("num_attention_heads").value_or(1);
  const std::int64_t share = heads > 0 ? config.integer("hidden_size").value_or(0) / heads : 0;
  for (const char* key : {"rotary_dim", "qk_rope_head_dim"}) {
    if (const auto stated = config.integer(key)) return *stated;
  }
  const std::int64_t whole = config.integer("head_dim").value_or(share);
  return rotated == 1.0 ? whole : static_cast<std::int64_t>(static_cast<double>(whole) * rotated);
}

std::shared_ptr<const GgufFile> translate_hf_config(const nlohmann::json& config, const HfFamily& family,
                                                    const std::string& where) {
  return HfTranslator(config, family, where).translate();
}

}  // namespace quire
