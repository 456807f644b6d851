// Decoders that differ from Llama in a norm, a scale or an activation.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

using nlohmann::json;

void read_apertus(SpecReader& reader, ModelSpec& spec) {
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    FeedForwardSpec& ffn = spec.layers[static_cast<std::size_t>(i)].feed_forward;
    ffn.is_gated = false;
    const auto number = [&](const char* key) {
      const auto value = reader.global_number(key, i);
      if (!value) reader.fail(std::string("the metadata key '") + key + "' is missing");
      return static_cast<float>(*value);
    };
    ffn.activation = {.kind = Nonlinearity::kXielu,
                      .alpha_p = number("xielu.alpha_p"),
                      .alpha_n = number("xielu.alpha_n"),
                      .beta = number("xielu.beta"),
                      .eps = number("xielu.eps")};
  }
}

void read_bitnet(SpecReader& /*reader*/, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.attention.output_norm = true;
    layer.feed_forward.sub_norm = true;
  }
}

// OLMo 3 is OLMo 2 with windows; sliding layers rotate without YaRN.
void read_olmo2(SpecReader& reader, ModelSpec& spec) {
  use_post_norms(spec);
  reader.read_windows_with_rope(spec, 4, false, spec.ropes[0].base);
  for (LayerSpec& layer : spec.layers)
    layer.attention.qk_norm = QkNorm::kFullWidth;
}

// Among GGUF files only the model of 64 layers has windows; then only sliding layers have positions.
void read_exaone4(SpecReader& reader, ModelSpec& spec) {
  constexpr std::size_t kLayersWithWindows = 64;
  use_post_norms(spec);
  const std::vector<bool> slides = reader.read_windows(spec, 4, false, reader.is_translated() ? 0 : 4096);
  const bool has_windows =
      reader.is_translated() ? reader.has("attention.sliding_window") : spec.layers.size() == kLayersWithWindows;
  for (std::size_t i = 0; i < slides.size(); ++i) {
    if (!has_windows) spec.layers[i].attention.window = 0;
    if (has_windows && !slides[i]) spec.layers[i].attention.rope = -1;
  }
}

void read_glm4(SpecReader& /*reader*/, ModelSpec& spec) {
  use_sandwich_norms(spec);
}

// Multipliers of embeddings, attention, branches and logits.
void read_granite(SpecReader& reader, ModelSpec& spec) {
  const auto given = [&](const char* key) {
    const double value = reader.number(key).value_or(0.0);
    return value == 0.0 ? 1.0 : value;
  };
  spec.embedding_scale = given("embedding_scale");
  spec.scales_media = true;
  spec.residual_scale = given("residual_scale");
  spec.logit_scale = 1.0 / given("logit_scale");
  const double scale = reader.number("attention.scale").value_or(0.0);
  const bool has_positions = reader.flag("rope.scaling.finetuned").value_or(true);
  for (LayerSpec& layer : spec.layers) {
    if (scale != 0.0) layer.attention.scale = scale;
    if (!has_positions) layer.attention.rope = -1;
  }
  reader.read_experts(spec);
  renormalise_experts(spec);
}

void read_minicpm(SpecReader& reader, ModelSpec& spec) {
  spec.embedding_scale = reader.number("embedding_scale").value_or(12.0);
  spec.scales_media = true;
  spec.residual_scale =
      reader.number("residual_scale").value_or(1.4 / std::sqrt(static_cast<double>(spec.config.num_layers)));
  spec.logit_scale = 1.0 / reader.number("logit_scale").value_or(256.0 / static_cast<double>(spec.config.hidden_size));
}

void read_hunyuan(SpecReader& reader, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.attention.norm_after_rope = true;
  reader.read_experts(spec);
  renormalise_experts(spec);
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

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

}  // namespace quire
