// Gemma 1 to 3 and EmbeddingGemma.
#include <cmath>

#include "core/model/architectures/registry.h"

namespace quire {

void read_gemma(SpecReader& reader, ModelSpec& spec) {
  spec.embedding_scale =
      static_cast<double>(static_cast<float>(std::sqrt(static_cast<double>(spec.config.hidden_size))));
  spec.logit_softcap = reader.number("final_logit_softcapping").value_or(0.0);
  const double scale = reader.number("attention.scale").value_or(0.0);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.activation.kind = Nonlinearity::kGelu;
    layer.attention.softcap = reader.number("attn_logit_softcapping").value_or(0.0);
    if (scale != 0.0) layer.attention.scale = scale;
  }
}

namespace {

// The largest models scale queries by the width of a head's share of the hidden state.
void scale_by_share(const SpecReader& reader, ModelSpec& spec, std::size_t num_layers) {
  if (spec.layers.size() != num_layers || reader.has("attention.scale")) return;
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale =
        1.0 / std::sqrt(static_cast<double>(spec.config.hidden_size) / static_cast<double>(spec.config.num_heads));
  }
}

}  // namespace

void read_gemma2(SpecReader& reader, ModelSpec& spec) {
  read_gemma(reader, spec);
  use_sandwich_norms(spec);
  spec.logit_softcap = reader.number("final_logit_softcapping").value_or(30.0);
  for (LayerSpec& layer : spec.layers)
    layer.attention.softcap = reader.number("attn_logit_softcapping").value_or(50.0);
  reader.read_windows(spec, 2, false, 4096);
  scale_by_share(reader, spec, 46);
}

void read_gemma3(SpecReader& reader, ModelSpec& spec) {
  read_gemma(reader, spec);
  use_sandwich_norms(spec);
  reader.read_windows_with_rope(spec, 6, false, 10000.0);
  scale_by_share(reader, spec, 62);
}

void read_gemma_embedding(SpecReader& reader, ModelSpec& spec) {
  read_gemma3(reader, spec);
  spec.is_causal = false;
  spec.has_head = false;
}

}  // namespace quire
