// Gemma 4: layers of two shapes, values normed without weight, per-layer embeddings, shared K and V, experts beside a
// dense feed-forward.
#include <cmath>

#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void read_attention(SpecReader& reader, ModelSpec& spec, const std::vector<bool>& slides) {
  const int id = SpecReader::add_rope(spec, reader.local_rope(spec, 10000.0));
  const std::int64_t num_layers = spec.config.num_layers;
  const std::int64_t shared = reader.integer("attention.shared_kv_layers").value_or(0);
  if (shared < 0 || shared + 2 > num_layers) reader.fail("'attention.shared_kv_layers' leaves too few layers");
  for (std::int64_t i = 0; i < num_layers; ++i) {
    AttentionSpec& attention = spec.layers[static_cast<std::size_t>(i)].attention;
    const bool is_local = slides[static_cast<std::size_t>(i)];
    attention.scale = 1.0;
    attention.value_norm = true;
    attention.qk_norm = QkNorm::kPerHead;
    if (is_local) {
      attention.rope = id;
      attention.key_dim = reader.integer("attention.key_length_swa").value_or(attention.key_dim);
      attention.value_dim = reader.integer("attention.value_length_swa").value_or(attention.value_dim);
    }
    if (i >= num_layers - shared) {
      attention.kv_source = num_layers - shared - (is_local ? 2 : 1);
      for (const char* unused : {"attn_k.", "attn_v.", "attn_k_norm."})
        reader.tensors().ignore("blk." + std::to_string(i) + "." + unused);
    } else {
      attention.value_is_key = !reader.has_tensor(i, "attn_v.weight");
    }
  }
}

}  // namespace

void read_gemma4(SpecReader& reader, ModelSpec& spec) {
  read_gemma(reader, spec);
  spec.logit_softcap = reader.number("final_logit_softcapping").value_or(30.0);
  use_sandwich_norms(spec);
  read_attention(reader, spec, reader.read_windows(spec, 6, true));
  reader.integer("embedding_length_per_layer_input");
  if (reader.has_tensor("per_layer_proj_norm.weight"))
    spec.per_layer_size = reader.tensors().shape_of("per_layer_proj_norm.weight").at(0);
  reader.read_experts(spec);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.output_scale = reader.has_tensor(static_cast<std::int64_t>(i), "layer_output_scale.weight");
    FeedForwardSpec& ffn = layer.feed_forward;
    if (ffn.kind != FeedForwardSpec::Kind::kExperts) continue;
    ffn.kind = FeedForwardSpec::Kind::kBoth;
    ffn.route.normalise = true;
    ffn.expert_activation.kind = Nonlinearity::kGelu;
  }
}

}  // namespace quire
