// Qwen2, Qwen3 and their expert models.
#include <fmt/core.h>

#include <algorithm>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void refuse_experts(SpecReader& reader) {
  if (reader.integer("expert_count").value_or(0) != 0)
    reader.fail("mixture-of-experts models are not supported in this architecture");
}

void require_qk_norm(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.attention.qk_norm = QkNorm::kPerHead;
}

}  // namespace

void read_qwen2(SpecReader& reader, ModelSpec& spec) {
  refuse_experts(reader);
  // A context within the window keeps the model exact: attention then sees all of it.
  const std::int64_t window = reader.integer("attention.sliding_window").value_or(0);
  if (window <= 0 || window >= spec.config.max_context) return;
  reader.tensors().warn(
      fmt::format("a window in some layers only is not computed: the context is the window's {} tokens, "
                  "not {}",
                  window, spec.config.max_context));
  spec.config.max_context = window;
}

void read_qwen3(SpecReader& reader, ModelSpec& spec) {
  read_qwen2(reader, spec);
  spec.config.has_qk_norm = true;
  require_qk_norm(spec);
  reader.integer("n_deepstack_layers");  // used by the vision tower only
}

// Routing weights are the probabilities themselves; the shared expert is gated.
void read_qwen2moe(SpecReader& reader, ModelSpec& spec) {
  reader.read_experts(spec);
}

void read_qwen3moe(SpecReader& reader, ModelSpec& spec) {
  require_qk_norm(spec);
  reader.integer("n_deepstack_layers");
  reader.read_experts(spec);
  renormalise_experts(spec);
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

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

}  // namespace quire
