// Decoders with layer norms: attention and feed-forward side by side (Phi-2, GPT-NeoX, Command R), or not.
#include <fmt/core.h>

#include <algorithm>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

void use_plain_gelu(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.is_gated = false;
    layer.feed_forward.activation.kind = Nonlinearity::kGelu;
  }
}

void use_one_norm(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.is_parallel = true;
    layer.ffn_norm = WeightRole::kNoRole;
  }
}

}  // namespace

void read_phi2(SpecReader& /*reader*/, ModelSpec& spec) {
  use_plain_gelu(spec);
  use_one_norm(spec);
}

void read_gptneox(SpecReader& reader, ModelSpec& spec) {
  use_plain_gelu(spec);
  for (LayerSpec& layer : spec.layers)
    layer.is_parallel = reader.flag("use_parallel_residual").value_or(true);
}

void read_starcoder2(SpecReader& reader, ModelSpec& spec) {
  use_plain_gelu(spec);
  // GGUF files state the window, but other readers ignore it; the class applies it to every layer.
  if (reader.is_translated()) {
    reader.read_windows(spec, 0);
  } else {
    reader.integer("attention.sliding_window");
  }
}

// Models without a norm before the feed-forward run both branches in parallel.
void read_stablelm(SpecReader& reader, ModelSpec& spec) {
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (reader.has_tensor(i, "attn_q_norm.weight")) layer.attention.qk_norm = QkNorm::kLayerPerHead;
    if (reader.has_tensor(i, "ffn_norm.weight")) continue;
    layer.is_parallel = true;
    layer.ffn_norm = WeightRole::kNoRole;
  }
}

// If there are two norms, attention has one of its own.
void read_falcon(SpecReader& reader, ModelSpec& spec) {
  use_plain_gelu(spec);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.is_parallel = true;
    const bool has_two = reader.has_tensor(i, "attn_norm_2.weight");
    layer.mixer_norm = has_two ? WeightRole::kAttentionNorm2 : WeightRole::kAttentionNorm;
    layer.ffn_norm = has_two ? WeightRole::kAttentionNorm : WeightRole::kNoRole;
  }
}

void read_gpt2(SpecReader& /*reader*/, ModelSpec& spec) {
  use_plain_gelu(spec);
  spec.has_positions = true;
  for (LayerSpec& layer : spec.layers)
    layer.attention.rope = -1;
}

void read_nemotron(SpecReader& /*reader*/, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.is_gated = false;
    layer.feed_forward.activation.kind = Nonlinearity::kReluSquared;
  }
}

// Norms have no weights; queries, keys and values are clamped.
void read_olmo(SpecReader& reader, ModelSpec& spec) {
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(spec.config.hidden_size, 0));
  const auto add_ones = [&](const std::string& name) {
    if (reader.has_tensor(name)) return;
    reader.tensors().add(float_tensor(name, {spec.config.hidden_size}, std::vector<float>(width, 1.0F)));
  };
  add_ones("output_norm.weight");
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    for (const WeightRole norm : {WeightRole::kAttentionNorm, WeightRole::kFfnNorm})
      add_ones(gguf_name(norm, i));
    spec.layers[static_cast<std::size_t>(i)].attention.clamp = reader.number("attention.clamp_kqv").value_or(0.0);
  }
}

void read_command_r(SpecReader& reader, ModelSpec& spec) {
  use_one_norm(spec);
  spec.logit_scale = reader.number("logit_scale").value_or(1.0);
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.qk_norm != QkNorm::kNone) layer.attention.qk_norm = QkNorm::kLayerPerHead;
  }
}

// Layers that see the whole context have no positions.
void read_cohere2(SpecReader& reader, ModelSpec& spec) {
  read_command_r(reader, spec);
  const std::vector<bool> slides = reader.read_windows(spec, 4);
  for (std::size_t i = 0; i < slides.size(); ++i) {
    if (!slides[i]) spec.layers[i].attention.rope = -1;
  }
}

// The first layer of every period sees the whole context, and has positions if it is dense; the experts' and the shared
// expert's outputs are averaged.
void read_cohere2_experts(SpecReader& reader, ModelSpec& spec) {
  read_command_r(reader, spec);
  const std::int64_t window = reader.required_integer("attention.sliding_window");
  const std::int64_t period = reader.integer("attention.sliding_window_pattern").value_or(4);
  const std::int64_t num_dense = reader.integer("leading_dense_block_count").value_or(0);
  if (period < 1) reader.fail("'attention.sliding_window_pattern' is not positive");
  reader.read_experts(spec, SpecReader::kSigmoidGating);
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    if (i % period != 0) {
      layer.attention.window = window;
    } else if (i >= num_dense) {
      layer.attention.rope = -1;
    }
    if (layer.feed_forward.shared_size > 0) layer.feed_forward.experts_scale = 0.5;
  }
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

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

}  // namespace quire
