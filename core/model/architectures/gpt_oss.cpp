// gpt-oss: sinks, alternating windows, experts with biases and a clamped SwiGLU.
#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

void read_gpt_oss(SpecReader& reader, ModelSpec& spec) {
  reader.read_windows(spec, 2);
  reader.read_experts(spec, SpecReader::kSoftmaxOfChosenGating);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.has_sinks = true;
    layer.ffn_norm = WeightRole::kPostAttentionNorm;
    layer.feed_forward.expert_activation.kind = Nonlinearity::kSwigluOai;
  }
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

void translate_gpt_oss(HfTranslation& t) {
  t.set_integer("expert_feed_forward_length", t.config().required_integer("intermediate_size"));
  t.require_number("swiglu_limit", 7.0);
}

}  // namespace quire
