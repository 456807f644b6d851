// A config.json under GGUF's keys.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/message_text.h"
#include "core/model/architectures/hf_config.h"
#include "core/model/architectures/hf_translation.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

using nlohmann::json;

class HfTranslation::Metadata final : public GgufFile {
 public:
  Metadata(std::string_view architecture, std::string where) : where_(std::move(where)) {
    set("general.architecture", architecture);
  }
  void set(const std::string& key, GgufValue value) { metadata_[names_.emplace_back(key)] = std::move(value); }
  std::string_view keep(std::string text) { return names_.emplace_back(std::move(text)); }
  void erase(const std::string& key) { metadata_.erase(key); }

  const std::map<std::string_view, GgufValue>& metadata() const override { return metadata_; }
  const std::vector<GgufTensor>& tensors() const override { return tensors_; }
  const GgufTensor* find_tensor(std::string_view) const override { return nullptr; }
  std::uint32_t version() const override { return 0; }
  std::uint64_t file_bytes() const override { return 0; }
  const std::string& where() const override { return where_; }
  void release(std::span<const std::byte>) const override {}

 private:
  const std::string where_;
  std::deque<std::string> names_;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

namespace {

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
};

constexpr KeyPair kNumberKeys[] = {
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

std::string_view architecture_of(const json& config, const HfFamily& family) {
  const auto found = config.find("use_bidirectional_attention");
  const bool both = found != config.end() && found->is_boolean() && found->get<bool>();
  if (both && family.architecture == "gemma3") return "gemma-embedding";
  if (family.architecture == "nemotron_h" && config.contains("num_experts_per_tok")) return "nemotron_h_moe";
  if (family.architecture == "nomic-bert" && config.value("num_experts", 0) > 0) return "nomic-bert-moe";
  return family.architecture;
}

}  // namespace

HfTranslation::HfTranslation(const json& raw, const JsonObject& config, const HfFamily& family, TensorTable& tensors,
                             const SpecWishes& wishes)
    : raw_(raw),
      config_(config),
      family_(family),
      tensors_(tensors),
      wishes_(wishes),
      prefix_(std::string(architecture_of(raw, family)) + "."),
      out_(std::make_shared<Metadata>(architecture_of(raw, family), config.where())) {}

std::shared_ptr<const GgufFile> HfTranslation::translate() {
  set("translated", true);
  read_activation();
  check_head();
  copy_common_keys();
  read_layer_types();
  read_experts();
  read_shapes();
  read_rope();
  if (family_.translate != nullptr) family_.translate(*this);
  require_sizes();
  // Without experts, their numbers have no meaning.
  if (out_->get_int(prefix_ + "expert_count").value_or(0) == 0) {
    for (const char* key :
         {"expert_count", "expert_used_count", "expert_feed_forward_length", "expert_group_count",
          "expert_group_used_count", "expert_weights_scale", "expert_weights_norm", "expert_gating_func"})
      erase(key);
  }
  return out_;
}

void HfTranslation::require_sizes() const {
  constexpr KeyPair kNeeded[] = {{"num_hidden_layers", "block_count"},
                                 {"hidden_size", "embedding_length"},
                                 {"num_attention_heads", "attention.head_count"},
                                 {"max_position_embeddings", "context_length"}};
  for (const KeyPair& pair : kNeeded) {
    if (out_->find(prefix_ + pair.gguf) == nullptr) config_.fail(fmt::format("'{}' is missing", pair.hf));
  }
}

std::string HfTranslation::layer_prefix(std::int64_t layer) const {
  return fmt::format("{}{}.{}.", hf_prefix(family_, tensors_), family_.layers, layer);
}

void HfTranslation::set(std::string_view key, GgufValue value) {
  out_->set(prefix_ + std::string(key), std::move(value));
}
void HfTranslation::set_text(std::string_view key, std::string value) {
  set(key, out_->keep(std::move(value)));
}
void HfTranslation::set_global(std::string_view key, GgufValue value) {
  out_->set(std::string(key), std::move(value));
}
void HfTranslation::set_default(std::string_view key, double value) {
  if (out_->find(prefix_ + std::string(key)) == nullptr) set(key, value);
}
void HfTranslation::erase(std::string_view key) {
  out_->erase(prefix_ + std::string(key));
}
void HfTranslation::copy_integer(const char* hf, std::string_view gguf) {
  if (const auto value = config_.integer(hf)) set_integer(gguf, *value);
}
void HfTranslation::copy_number(const char* hf, std::string_view gguf) {
  if (const auto value = config_.number(hf)) set(gguf, *value);
}

std::optional<std::vector<std::int64_t>> HfTranslation::layer_list(const char* key) const {
  const json* list = config_.find(key);
  if (list == nullptr) return std::nullopt;
  if (!list->is_array()) config_.fail(fmt::format("'{}' is not an array", key));
  std::vector<std::int64_t> out;
  for (const json& value : *list) {
    if (!value.is_number_integer() && !value.is_boolean())
      config_.fail(fmt::format("'{}' holds a value that is neither a whole number nor true or false", key));
    out.push_back(value.is_boolean() ? static_cast<std::int64_t>(value.get<bool>()) : value.get<std::int64_t>());
  }
  return out;
}

std::vector<bool> HfTranslation::layers_of(std::initializer_list<std::string_view> kinds) const {
  std::vector<bool> out;
  for (const std::string& type : layer_types_)
    out.push_back(std::ranges::find(kinds, type) != kinds.end());
  return out;
}

void HfTranslation::set_kv_heads(const std::vector<bool>& attends) {
  const std::int64_t heads =
      config_.integer("num_key_value_heads").value_or(config_.integer("num_attention_heads").value_or(1));
  std::vector<std::int64_t> out;
  for (const bool own : attends)
    out.push_back(own ? heads : 0);
  set("attention.head_count_kv", out);
}

void HfTranslation::require_flag(const char* key, bool wanted, bool unset) const {
  if (config_.boolean(key).value_or(unset) != wanted)
    config_.fail(fmt::format("'{}' is {}, which is not supported", key, !wanted));
}
void HfTranslation::require_text(const char* key, std::string_view wanted) const {
  if (const auto text = config_.text(key); text && *text != wanted)
    config_.fail(fmt::format("'{}' is '{}'; only '{}' is supported", key, printable(*text), wanted));
}
void HfTranslation::require_integer(const char* key, std::int64_t wanted) const {
  if (const auto value = config_.integer(key); value && *value != wanted)
    config_.fail(fmt::format("'{}' is {}; only {} is supported", key, *value, wanted));
}
void HfTranslation::require_number(const char* key, double wanted) const {
  if (const auto value = config_.number(key); value && *value != wanted)
    config_.fail(fmt::format("'{}' is {}; only {} is supported", key, *value, wanted));
}

void HfTranslation::copy_common_keys() {
  for (const KeyPair& pair : kIntegers) {
    // Some classes list the same number for every layer.
    const json* value = config_.find(pair.hf);
    if (value == nullptr || value->is_array()) continue;
    copy_integer(pair.hf, pair.gguf);
  }
  for (const KeyPair& pair : kNumberKeys)
    copy_number(pair.hf, pair.gguf);
  if (const auto flag = config_.boolean("norm_topk_prob")) set("expert_weights_norm", *flag);
  // Null switches off a feature that the class has by default.
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (raw_.contains(key) && raw_.at(key).is_null()) set(key, 0.0);
  }
  if (const auto share = config_.number("query_pre_attn_scalar"); share && *share > 0.0)
    set("attention.scale", 1.0 / std::sqrt(*share));
  config_.find("use_bidirectional_attention");
}

// GELU has two forms that differ by some thousandths: by the error function, which the plain name means, and by a tanh.
// Gemma's class computes the latter even if its older files name the former.
void HfTranslation::read_activation() {
  std::string name;
  for (const char* key : {"mlp_hidden_act", "hidden_activation", "hidden_act", "activation_function", "activation"}) {
    if (const auto own = config_.text(key); own && name.empty()) name = *own;
  }
  const bool by_error = name == "gelu" || name == "gelu_python";
  if (by_error && !family_.architecture.starts_with("gemma")) set("exact_gelu", true);
  if (name.empty() || family_.activation.empty()) return;
  constexpr std::string_view kTanhForms[] = {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate"};
  const bool is_gelu = by_error || std::ranges::find(kTanhForms, name) != std::end(kTanhForms);
  const bool fits = family_.activation == "gelu" ? is_gelu : name == family_.activation;
  if (!fits) config_.fail(fmt::format("the activation '{}' is not supported", printable(name)));
}

// A model without a head, whose embedding is not its head either, is an embedding model. If its class generates text or
// is not named, the files must mark it as one.
void HfTranslation::check_head() {
  const bool is_tied = config_.boolean("tie_word_embeddings").value_or(true);
  const json* names = config_.find("architectures");
  const bool has_head = tensors_.stores("lm_head.weight") || tensors_.stores("language_model.lm_head.weight");
  if (is_tied || has_head || tensors_.tensors().empty()) return;
  const bool is_named = names != nullptr && names->is_array() && !names->empty() && names->front().is_string();
  const std::string name = is_named ? names->front().get<std::string>() : "";
  const bool needs_head = name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration");
  if ((needs_head || !is_named) && !wishes_.may_lack_head)
    config_.fail("'tie_word_embeddings' is false and there is no tensor 'lm_head.weight'");
  set("headless", true);
}

void HfTranslation::read_rope() {
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

void HfTranslation::read_rope_parameters(const json& raw, const JsonObject& scaling) {
  json keys = raw;
  if (family_.architecture.starts_with("hunyuan")) keys.erase("alpha");
  refuse_unknown_rope_keys(keys, scaling);
  if (const auto base = scaling.number("rope_theta")) set("rope.freq_base", *base);
  read_scaling(scaling);
}

void HfTranslation::read_local_rope(const JsonObject& by_type) {
  const auto local = by_type.object("sliding_attention");
  if (!local) return;
  if (const auto base = local->number("rope_theta")) set("rope.freq_base_swa", *base);
  if (rope_type_of(*local) != "default") local->fail("a scaled rotation of sliding layers is not supported");
}

void HfTranslation::read_scaling(const JsonObject& scaling) {
  const std::string type = rope_type_of(scaling);
  // Llama 3's and proportional scaling are stored as frequency factors. Rotation sections do not matter for text.
  if (type == "default" || type == "llama3" || type == "proportional" || type == "mrope") return;
  if (type == "dynamic") return read_dynamic(scaling);
  if (type == "longrope") return read_long_rope(scaling);
  if (type != "yarn" && type != "linear") {
    scaling.fail(fmt::format("the RoPE type '{}' is not supported (default, linear, dynamic, llama3, yarn, longrope)",
                             printable(type)));
  }
  const double context = config_.number("max_position_embeddings").value_or(0.0);
  const double original = scaling.number("original_max_position_embeddings").value_or(context);
  if (type == "linear" && !scaling.has("factor")) scaling.fail("'factor' is missing");
  const double factor = scaling.number("factor").value_or(original > 0.0 ? context / original : 1.0);
  if (!(factor > 0.0)) scaling.fail("'factor' is not above 0");
  set_text("rope.scaling.type", type);
  set("rope.scaling.factor", factor);
  set("rope.scaling.original_context_length", original);
  if (type == "yarn") read_yarn(scaling, factor);
}

// Dynamic scaling changes nothing up to the trained context. Beyond it, cached keys would have to be rotated
// again.
void HfTranslation::read_dynamic(const JsonObject& scaling) {
  const std::int64_t stated = config_.integer("max_position_embeddings").value_or(0);
  const std::int64_t trained = std::min(stated, scaling.integer("original_max_position_embeddings").value_or(stated));
  const double factor = scaling.number("factor").value_or(1.0);
  if (trained < stated) set_integer("context_length", trained);
  if (factor > 1.0 || trained < stated)
    tensors_.warn(
        fmt::format("'dynamic' scaling of the rotation is not computed: the context is the trained one of {} "
                    "tokens; 'yarn' or 'linear' in rope_scaling extend it",
                    trained));
}

void HfTranslation::read_yarn(const JsonObject& scaling, double factor) {
  for (const char* key : {"beta_fast", "beta_slow"}) {
    if (const auto value = scaling.number(key)) set(std::string("rope.scaling.yarn_") + key, *value);
  }
  set("rope.scaling.truncate", scaling.boolean("truncate").value_or(true));
  // GGUF's factor multiplies YaRN's own.
  if (const auto given = scaling.number("attention_factor"))
    set("rope.scaling.attn_factor", *given / yarn_attention_factor(factor));
  const double all = scaling.number("mscale_all_dim").value_or(0.0);
  const bool is_latent = config_.has("kv_lora_rank");
  if (!is_latent && family_.architecture != "mistral3") {
    const double own = scaling.number("mscale").value_or(0.0);
    if (own != 0.0 && all != 0.0 && !scaling.has("attention_factor"))
      set("rope.scaling.attn_factor",
          yarn_attention_factor(factor, own) / yarn_attention_factor(factor, all) / yarn_attention_factor(factor));
    return;
  }
  const double wanted = family_.architecture == "deepseek2" ? all : 1.0;
  if (all != 0.0 && scaling.number("mscale").value_or(wanted) != wanted)
    scaling.fail(fmt::format("an 'mscale' other than {} is not supported", wanted));
  if (all != 0.0) set("rope.scaling.yarn_log_multiplier", is_latent ? all * 0.1 : all);
  if (const auto beta = scaling.number("llama_4_scaling_beta")) set("attention.temperature_scale", *beta);
}

void HfTranslation::read_long_rope(const JsonObject& scaling) {
  const double context = config_.number("max_position_embeddings").value_or(0.0);
  double original = scaling.number("original_max_position_embeddings").value_or(context);
  original = config_.number("original_max_position_embeddings").value_or(original);
  set("rope.scaling.original_context_length", original);
  // Published models have the same factor for both.
  const auto stated = scaling.number("short_mscale");
  if (scaling.number("long_mscale") != stated)
    scaling.fail("a 'long_mscale' other than 'short_mscale' is not supported");
  // Longer contexts sharpen the softmax: sqrt(1 + ln(factor) / ln(original)).
  double factor = scaling.number("factor").value_or(original > 0.0 ? context / original : 1.0);
  factor = factor > 1.0 && original > 1.0 ? std::sqrt(1.0 + std::log(factor) / std::log(original)) : 1.0;
  set("rope.scaling.attn_factor", scaling.number("attention_factor").value_or(stated.value_or(factor)));
}

// Reads the kind of each layer, if the configuration lists it.
void HfTranslation::read_layer_types() {
  const bool slides = config_.boolean("use_sliding_window").value_or(true);
  const json* window = config_.find("sliding_window");
  if (window != nullptr && window->is_number() && slides) copy_integer("sliding_window", "attention.sliding_window");
  const json* types = config_.find("layer_types");
  if (types == nullptr) types = config_.find("layers_block_type");
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    const json* pattern = config_.find(key);
    if (types == nullptr && pattern != nullptr && pattern->is_number_integer())
      set_integer("attention.sliding_window_pattern", pattern->get<std::int64_t>());
  }
  if (types == nullptr) return;
  if (!types->is_array()) config_.fail("'layer_types' is not an array");
  for (const json& type : *types) {
    constexpr std::array<std::string_view, 9> kTypes{
        "sliding_attention", "linear_attention", "conv", "full_attention", "mamba", "attention", "mlp", "moe",
        "chunked_attention"};
    if (!type.is_string() || std::ranges::find(kTypes, type.get<std::string>()) == kTypes.end())
      config_.fail(fmt::format("the layer type {} is not supported", printable(type.dump())));
    layer_types_.push_back(type.get<std::string>());
  }
  if (std::ssize(layer_types_) < config_.integer("num_hidden_layers").value_or(0))
    config_.fail("'layer_types' has fewer entries than there are layers");
  const std::vector<bool> sliding = layers_of({"sliding_attention"});
  if (std::ranges::find(sliding, true) != sliding.end() || (window != nullptr && slides))
    set("attention.sliding_window_pattern", sliding);
}

void HfTranslation::read_experts() {
  const std::string scoring = config_.text("scoring_func").value_or("");
  if (scoring == "sigmoid") {
    set_integer("expert_gating_func", 2);
  } else if (!scoring.empty() && scoring != "softmax") {
    config_.fail(fmt::format("the routing function '{}' is not supported", printable(scoring)));
  }
  if (config_.text("topk_method").value_or("") == "group_limited_greedy")
    config_.fail("the routing method 'group_limited_greedy' is not supported");
  require_integer("decoder_sparse_step", 1);
  if (const json* frequency = config_.find("moe_layer_freq"); frequency != nullptr && !frequency->is_array())
    require_integer("moe_layer_freq", 1);
}

// Computes sizes that are sums or products of others.
void HfTranslation::read_shapes() {
  if (const auto nope = config_.integer("qk_nope_head_dim")) {
    const std::int64_t key = *nope + config_.required_integer("qk_rope_head_dim");
    const std::int64_t value = config_.required_integer("v_head_dim");
    for (const char* name : {"attention.key_length_mla", "attention.key_length"})
      set_integer(name, key);
    for (const char* name : {"attention.value_length_mla", "attention.value_length"})
      set_integer(name, value);
  }
}

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

std::shared_ptr<const GgufFile> translate_hf_config(const json& raw, const JsonObject& config, const HfFamily& family,
                                                    TensorTable& tensors, const SpecWishes& wishes) {
  return HfTranslation(raw, config, family, tensors, wishes).translate();
}

}  // namespace quire
