// Plain decoders' configuration keys beyond the common ones.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"

namespace quire {

using nlohmann::json;

namespace {

// If the layers are not listed, every sixth one sees the whole context; the last one always does.
void list_gemma4_layers(HfTranslation& t) {
  constexpr std::int64_t kPeriod = 6;
  std::vector<std::string> types = t.layer_types();
  for (std::int64_t i = std::ssize(types); i < t.num_layers(); ++i)
    types.emplace_back((i + 1) % kPeriod == 0 ? "full_attention" : "sliding_attention");
  if (!types.empty()) types.back() = "full_attention";
  std::vector<bool> slides;
  for (const std::string& type : types)
    slides.push_back(type == "sliding_attention");
  t.set_layer_types(std::move(types));
  t.set("attention.sliding_window_pattern", slides);
}

}  // namespace

// The class has a window only in layers that the file lists as sliding.
void translate_llama(HfTranslation& t) {
  t.require_integer("num_local_experts", 0);
  t.require_integer("num_experts", 0);
  t.config().find("use_sliding_window");
  t.config().find("max_window_layers");
  if (std::ranges::find(t.layer_types(), "sliding_attention") != t.layer_types().end()) return;
  t.erase("attention.sliding_window");
  t.erase("attention.sliding_window_pattern");
}

// If the file does not list the layers, the window applies from max_window_layers on.
void translate_qwen(HfTranslation& t) {
  const JsonObject& config = t.config();
  const bool is_used = config.boolean("use_sliding_window").value_or(false) &&
                       config.integer("max_window_layers").value_or(0) < t.num_layers();
  const auto& types = t.layer_types();
  const bool slides = types.empty() ? is_used : std::ranges::find(types, "sliding_attention") != types.end();
  t.erase("attention.sliding_window_pattern");
  if (slides) return t.copy_integer("sliding_window", "attention.sliding_window");
  t.erase("attention.sliding_window");
}

// Layers of two shapes.
void translate_gemma4(HfTranslation& t) {
  const JsonObject& config = t.config();
  // "vision" concerns pictures alone.
  if (const json* both = config.find("use_bidirectional_attention");
      both != nullptr && *both != "vision" && *both != false)
    config.fail("'use_bidirectional_attention' of text is not supported");
  list_gemma4_layers(t);
  const auto local = config.required_integer("head_dim");
  const auto global = config.integer("global_head_dim").value_or(local);
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    t.set_integer(key, global);
  for (const char* key : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
    t.set_integer(key, local);
  const auto heads = config.integer("num_key_value_heads").value_or(1);
  const bool has_global = config.boolean("attention_k_eq_v").value_or(false);
  const auto stated = config.integer("num_global_key_value_heads");
  const auto global_heads = has_global ? stated.value_or(heads) : heads;
  const auto size = config.required_integer("intermediate_size");
  const auto shared = config.integer("num_kv_shared_layers").value_or(0);
  const bool doubled = config.boolean("use_double_wide_mlp").value_or(false);
  t.copy_integer("num_kv_shared_layers", "attention.shared_kv_layers");
  std::vector<std::int64_t> kv_heads;
  std::vector<std::int64_t> sizes;
  const auto num_layers = std::ssize(t.layer_types());
  for (std::int64_t i = 0; i < num_layers; ++i) {
    kv_heads.push_back(t.layer_types()[static_cast<std::size_t>(i)] == "sliding_attention" ? heads : global_heads);
    sizes.push_back(doubled && i >= num_layers - shared ? 2 * size : size);
  }
  t.set("attention.head_count_kv", kv_heads);
  t.set("feed_forward_length", sizes);
}

namespace {

// Quantile of the normal distribution at `share`.
double normal_quantile(double share) {
  double low = -40.0;
  double high = 40.0;
  for (int step = 0; step < 200; ++step) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace

// Sparsity is listed as the share of the gate that is ignored.
void translate_gemma3n(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.require_integer("altup_active_idx", 0);
  t.require_flag("altup_correct_scale", true, true);
  t.copy_integer("altup_num_inputs", "altup.num_inputs");
  for (const char* shown : {"laurel_rank", "altup_coef_clip", "altup_lr_multiplier"})
    config.find(shown);  // shown by the tensors, or used in training only
  if (const json* sizes = config.find("intermediate_size"); sizes != nullptr && sizes->is_array())
    t.set("feed_forward_length", t.layer_list("intermediate_size").value());
  const std::int64_t num_layers = t.num_layers();
  const std::int64_t shared = config.integer("num_kv_shared_layers").value_or(15);
  t.set_integer("attention.shared_kv_layers", shared);
  for (std::int64_t i = std::max<std::int64_t>(0, num_layers - shared); i < num_layers; ++i) {
    for (const char* unused : {"k_proj.", "v_proj.", "k_norm."})
      t.tensors().ignore(t.layer_prefix(i) + "self_attn." + unused);
  }
  const json* shares = config.find("activation_sparsity_pattern");
  std::vector<double> deviations;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    double share = i < 10 && num_layers > 10 ? 0.95 : 0.0;
    const auto at = static_cast<std::size_t>(i);
    if (shares != nullptr) {
      if (!shares->is_array() || at >= shares->size() || !(*shares)[at].is_number())
        config.fail("'activation_sparsity_pattern' has no number for each layer");
      share = (*shares)[at].get<double>();
    }
    if (!(share >= 0.0 && share < 1.0)) config.fail("'activation_sparsity_pattern' holds a number outside 0 to 1");
    deviations.push_back(share == 0.0 ? -std::numeric_limits<double>::infinity() : normal_quantile(share));
  }
  t.set("activation_sparsity_scale", deviations);
}

// If the layers are not listed: a pattern of letters, L for sliding layers, or a period.
void translate_exaone4(HfTranslation& t) {
  const JsonObject& config = t.config();
  const json* pattern = config.find("sliding_window_pattern");
  if (!config.has("sliding_window") || !t.layer_types().empty()) return;
  std::string letters = "LLLG";
  if (pattern != nullptr && pattern->is_string()) letters = pattern->get<std::string>();
  if (pattern != nullptr && pattern->is_number_integer()) {
    const auto period = pattern->get<std::int64_t>();
    if (period < 1 || period > 4096) config.fail("'sliding_window_pattern' is not between 1 and 4096");
    letters = std::string(static_cast<std::size_t>(period - 1), 'L') + "G";
  }
  if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
    config.fail("'sliding_window_pattern' is neither a period nor made of the letters L and G");
  std::vector<bool> slides;
  for (std::int64_t i = 0; i < t.num_layers(); ++i)
    slides.push_back(letters[static_cast<std::size_t>(i) % letters.size()] == 'L');
  t.set("attention.sliding_window_pattern", slides);
}

namespace {

// A number, or a list with the same number for each layer.
std::optional<std::int64_t> uniform_integer(const HfTranslation& t, const char* key) {
  const json* value = t.config().find(key);
  if (value == nullptr || !value->is_array()) return t.config().integer(key);
  const auto list = t.layer_list(key).value_or(std::vector<std::int64_t>{});
  for (const std::int64_t own : list) {
    if (own != list.front()) t.config().fail(fmt::format("'{}' differs from layer to layer", key));
  }
  return list.empty() ? std::nullopt : std::optional(list.front());
}

}  // namespace

// alpha extends the base of the rotation, regardless of the context's length.
void translate_hunyuan(HfTranslation& t) {
  const JsonObject& config = t.config();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = config.object(key);
    if (!scaling || !scaling->has("alpha")) continue;
    const double alpha = *scaling->number("alpha");
    if (rope_type_of(*scaling) != "dynamic" || !(alpha > 0.0)) continue;
    const double base = scaling->number("rope_theta").value_or(config.number("rope_theta").value_or(10000.0));
    const auto dim = static_cast<double>(rotary_dim_of(config));
    t.set("rope.freq_base", base * std::pow(alpha, dim / (dim - 2.0)));
  }
  t.require_flag("use_cla", false, false);
  t.require_integer("attention_head_dim", config.integer("head_dim").value_or(0));
  if (const auto chosen = uniform_integer(t, "moe_topk")) t.set_integer("expert_used_count", *chosen);
  if (config.integer("num_experts").value_or(0) <= 1) t.erase("expert_count");
  uniform_integer(t, "moe_intermediate_size");  // the tensors show the experts' width
  uniform_integer(t, "num_shared_expert");
}

// The activation has weights in each layer, stored as inverse softplus.
void translate_apertus(HfTranslation& t) {
  t.require_flag("post_norm", false, false);
  t.config().boolean("qk_norm");  // shown by the tensors
  struct Parameter {
    const char* name;
    double unset;
  };
  for (const Parameter& parameter :
       {Parameter{"alpha_p", 0.0}, Parameter{"alpha_n", 0.0}, Parameter{"beta", 0.5}, Parameter{"eps", -1e-6}}) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < t.num_layers(); ++i) {
      const std::string name = fmt::format("{}mlp.act_fn.{}", t.layer_prefix(i), parameter.name);
      const bool is_there = t.tensors().stores(name);
      if (!is_there && parameter.unset == 0.0) t.config().fail(fmt::format("the tensor '{}' is missing", name));
      values.push_back(is_there ? static_cast<double>(t.tensors().take_values(name, 1).front()) : parameter.unset);
    }
    t.set_global(std::string("xielu.") + parameter.name, values);
  }
}

// Norms of queries and keys are one tensor for each head.
void translate_stablelm(HfTranslation& t) {
  const std::int64_t heads = t.config().required_integer("num_attention_heads");
  const auto join = [&](std::int64_t layer, const char* hf, const char* gguf, std::int64_t count) {
    const auto name_of = [&](std::int64_t head) {
      return fmt::format("{}self_attn.{}.norms.{}.weight", t.layer_prefix(layer), hf, head);
    };
    if (!t.tensors().stores(name_of(0))) return;
    std::vector<float> values;
    const std::int64_t dim = t.tensors().shape_of(name_of(0)).at(0);
    for (std::int64_t head = 0; head < count; ++head) {
      const std::vector<float> own = t.tensors().take_values(name_of(head), dim);
      values.insert(values.end(), own.begin(), own.end());
    }
    t.tensors().add(float_tensor(fmt::format("blk.{}.{}.weight", layer, gguf), {count, dim}, std::move(values)));
  };
  for (std::int64_t i = 0; i < t.num_layers(); ++i) {
    join(i, "q_layernorm", "attn_q_norm", heads);
    join(i, "k_layernorm", "attn_k_norm", t.config().integer("num_key_value_heads").value_or(heads));
  }
  for (const char* key : {"use_parallel_residual", "qk_layernorm"})
    t.config().boolean(key);  // shown by the tensors
}

void translate_cohere2(HfTranslation& t) {
  t.require_flag("use_parallel_block", true, true);
  t.require_number("rotary_pct", 1.0);
  t.require_text("position_embedding_type", "rope_gptj");
}

// 1: the layer has positions.
void translate_smollm3(HfTranslation& t) {
  const auto list = t.layer_list("no_rope_layers");
  const std::int64_t interval = t.config().integer("no_rope_layer_interval").value_or(4);
  if (interval < 1) t.config().fail("'no_rope_layer_interval' is not positive");
  std::vector<bool> rotates;
  for (std::int64_t i = 0; i < t.num_layers(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    rotates.push_back(list && at < list->size() ? (*list)[at] != 0 : (i + 1) % interval != 0);
  }
  t.set("attention.rotates", rotates);
}

}  // namespace quire
