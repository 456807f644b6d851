// Llama and families that compute the same way.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

using nlohmann::json;

void read_plain_decoder(SpecReader& /*reader*/, ModelSpec& /*spec*/) {}

// Mixtral is a Llama with experts, Mistral v0.1 one with a window in every layer.
void read_llama(SpecReader& reader, ModelSpec& spec) {
  reader.read_windows(spec, 0);
  reader.read_experts(spec);
  renormalise_experts(spec);
}

// Phi-3's mini models have a window in every layer.
void read_phi3(SpecReader& reader, ModelSpec& spec) {
  reader.read_windows(spec, 0);
}

// Published files state a window as long as their context.
void read_phimoe(SpecReader& reader, ModelSpec& spec) {
  if (reader.integer("attention.sliding_window").value_or(0) < spec.config.max_context) reader.read_windows(spec, 0);
  reader.read_experts(spec);
  const auto jitter = reader.number("expert_mixer_jitter");
  if (!jitter) return renormalise_experts(spec);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.route.gate = RouteOptions::Gate::kSparseMixer;
    layer.feed_forward.route.mixer_share = static_cast<float>(2.0 * *jitter);
  }
}

void read_arcee(SpecReader& /*reader*/, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.is_gated = false;
    layer.feed_forward.activation.kind = Nonlinearity::kReluSquared;
  }
}

// Every fourth layer has no positions.
void read_smollm3(SpecReader& reader, ModelSpec& spec) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const bool rotates = reader.flag("attention.rotates", static_cast<std::int64_t>(i)).value_or(i % 4 != 3);
    if (!rotates) spec.layers[i].attention.rope = -1;
  }
}

void read_mistral3(SpecReader& reader, ModelSpec& spec) {
  use_log_multiplier(spec, reader.number("rope.scaling.yarn_log_multiplier").value_or(0.0));
  const double scale = reader.number("attention.temperature_scale").value_or(0.0);
  const double length = reader.number("rope.scaling.original_context_length").value_or(0.0);
  if (scale != 0.0 && length < 1.0) reader.fail("the temperature's context length is missing");
  for (LayerSpec& layer : spec.layers) {
    layer.attention.temperature = scale;
    layer.attention.temperature_length = scale != 0.0 ? length : 1.0;
  }
}

namespace {

void weight_expert_inputs(LayerSpec& layer) {
  layer.feed_forward.route.gate = RouteOptions::Gate::kSigmoid;
  layer.feed_forward.route.normalise = false;
  layer.feed_forward.weight_input = true;
}

// Reads each layer's settings from lists.
void read_listed_llama4(SpecReader& reader, ModelSpec& spec) {
  const std::int64_t chunk = reader.integer("attention.chunk_size").value_or(0);
  const bool unit_norm = reader.flag("attention.unit_qk_norm").value_or(true);
  const double temperature = reader.number("attention.temperature_scale").value_or(0.0);
  const auto length = static_cast<double>(reader.integer("attention.temperature_length").value_or(1));
  reader.read_experts(spec);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    AttentionSpec& attention = spec.layers[i].attention;
    if (reader.flag("attention.chunked", layer).value_or(false)) attention.chunk = chunk;
    if (reader.flag("attention.rotates", layer).value_or(true)) {
      attention.unit_qk_norm = unit_norm;
      attention.norm_after_rope = true;
    } else {
      attention.rope = -1;
      attention.temperature = temperature;
      attention.temperature_length = length;
      attention.temperature_offset = 1.0;
    }
    weight_expert_inputs(spec.layers[i]);
  }
}

}  // namespace

// Every fourth layer sees the whole context without positions; the others see chunks. Experts take a weighted input.
void read_llama4(SpecReader& reader, ModelSpec& spec) {
  constexpr std::int64_t kChunk = 8192;
  if (reader.is_translated()) return read_listed_llama4(reader, spec);
  // A window of zero: all layers have positions and see the whole context.
  const bool has_chunks = reader.integer("attention.sliding_window").value_or(kChunk) != 0;
  reader.read_experts(spec);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    if (has_chunks && i % 4 == 3) {
      attention.rope = -1;
      attention.temperature = 0.1;
      attention.temperature_length = static_cast<double>(kChunk);
      attention.temperature_offset = 1.0;
    } else {
      attention.chunk = has_chunks ? reader.integer("attention.chunk_size").value_or(kChunk) : 0;
      attention.unit_qk_norm = reader.integer("expert_count").value_or(0) != 128;
      attention.norm_after_rope = true;
    }
    weight_expert_inputs(spec.layers[i]);
  }
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

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

namespace {

// By layer: whether it has positions. The key's name says the opposite of its values: 1 is a layer with positions.
std::vector<bool> layers_with_positions(const HfTranslation& t) {
  const auto list = t.layer_list("no_rope_layers");
  const std::int64_t interval = t.config().integer("no_rope_layer_interval").value_or(4);
  if (interval < 1) t.config().fail("'no_rope_layer_interval' is not positive");
  std::vector<bool> rotates;
  for (std::int64_t i = 0; i < t.num_layers(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    rotates.push_back(list && at < list->size() ? (*list)[at] != 0 : (i + 1) % interval != 0);
  }
  return rotates;
}

}  // namespace

void translate_smollm3(HfTranslation& t) {
  t.set("attention.rotates", layers_with_positions(t));
}

// Layer norms stored under RMS norms' names. Experts are weighted as in training, with its jitter as a threshold.
void translate_phimoe(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.require_integer("num_experts_per_tok", 2);
  t.set("expert_mixer_jitter", config.number("router_jitter_noise").value_or(0.01));
  t.set("attention.layer_norm_epsilon", config.number("rms_norm_eps").value_or(1e-5));
  t.erase("attention.layer_norm_rms_epsilon");
  config.boolean("lm_head_bias");  // shown by the tensors
}

// Lists name the layers that see chunks and those that have positions.
void translate_llama4(HfTranslation& t) {
  const JsonObject& config = t.config();
  t.copy_integer("intermediate_size_mlp", "feed_forward_length");
  for (const char* shown : {"interleave_moe_layer_step", "moe_layers"})
    config.find(shown);  // shown by the tensors
  const std::vector<bool> rotates = layers_with_positions(t);
  std::vector<bool> chunked;
  for (std::size_t i = 0; i < rotates.size(); ++i)
    chunked.push_back(t.layer_types().empty() ? rotates[i] : t.layer_types().at(i) == "chunked_attention");
  t.set("attention.rotates", rotates);
  t.set("attention.chunked", chunked);
  t.set_integer("attention.chunk_size", config.integer("attention_chunk_size").value_or(0));
  t.set("attention.unit_qk_norm", config.boolean("use_qk_norm").value_or(true));
  // Older files have a number here.
  const json* tuning = config.find("attn_temperature_tuning");
  const bool has_temperature = tuning == nullptr || (*tuning != false && *tuning != 0);
  t.set("attention.temperature_scale", has_temperature ? config.number("attn_scale").value_or(0.1) : 0.0);
  t.set_integer("attention.temperature_length", config.integer("floor_scale").value_or(8192));
}

}  // namespace quire
