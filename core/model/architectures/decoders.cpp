// Decoders that differ from Llama in a norm, a scale or an activation.
#include <cmath>

#include "core/model/architectures/registry.h"

namespace quire {

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

}  // namespace quire
