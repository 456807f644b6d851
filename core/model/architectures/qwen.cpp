// Qwen2, Qwen3 and their expert models.
#include <fmt/core.h>

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

}  // namespace quire
