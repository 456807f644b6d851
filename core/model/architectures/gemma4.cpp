// Gemma 4: layers of two shapes, values normed without weight, per-layer embeddings, shared K and V, experts beside a
// dense feed-forward. Gemma 3n: the same attention, several residual streams, sparse feed-forwards.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
#include "core/model/architectures/registry.h"

namespace quire {

using nlohmann::json;

namespace {

// The last `shared` layers use K and V of the last layer of their kind before them.
void share_kv(SpecReader& reader, ModelSpec& spec, const std::vector<bool>& slides, std::int64_t shared) {
  const std::int64_t num_layers = spec.config.num_layers;
  if (shared == 0) return;
  if (shared < 0 || shared + 2 > num_layers) reader.fail("'attention.shared_kv_layers' leaves too few layers");
  for (std::int64_t i = num_layers - shared; i < num_layers; ++i) {
    const bool is_local = slides[static_cast<std::size_t>(i)];
    spec.layers[static_cast<std::size_t>(i)].attention.kv_source = num_layers - shared - (is_local ? 2 : 1);
    for (const char* unused : {"attn_k.", "attn_v.", "attn_k_norm."})
      reader.tensors().ignore("blk." + std::to_string(i) + "." + unused);
  }
}

void read_per_layer_size(SpecReader& reader, ModelSpec& spec) {
  reader.integer("embedding_length_per_layer_input");
  if (reader.has_tensor("per_layer_proj_norm.weight"))
    spec.per_layer_size = reader.tensors().shape_of("per_layer_proj_norm.weight").at(0);
  const bool has_table = reader.has_tensor("per_layer_token_embd.weight");
  spec.per_layer_rows =
      has_table ? reader.tensors().shape_of("per_layer_token_embd.weight").at(0) : spec.config.vocab_size;
}

void read_attention(SpecReader& reader, ModelSpec& spec, const std::vector<bool>& slides) {
  const int id = SpecReader::add_rope(spec, reader.local_rope(spec, 10000.0));
  share_kv(reader, spec, slides, reader.integer("attention.shared_kv_layers").value_or(0));
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
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
    if (attention.kv_source < 0) attention.value_is_key = !reader.has_tensor(i, "attn_v.weight");
  }
}

// The number and width of streams and ranks follow from the tensors.
void read_streams(SpecReader& reader, ModelSpec& spec) {
  const bool is_stacked = reader.has_tensor("altup_proj.weight");
  std::int64_t num_others = is_stacked ? reader.tensors().shape_of("altup_proj.weight").at(0) : 0;
  while (!is_stacked && reader.has_tensor("altup_proj." + std::to_string(num_others) + ".weight"))
    ++num_others;
  spec.num_streams = num_others + 1;
  if (reader.integer("altup.num_inputs").value_or(spec.num_streams) != spec.num_streams)
    reader.fail("'altup.num_inputs' is not the number of the tensors' streams");
  if (reader.integer("altup.active_idx").value_or(0) != 0)
    reader.fail("the metadata key 'gemma3n.altup.active_idx' is not 0, which is not supported");
  spec.laurel_rank = reader.rows_of(0, "laurel_l.weight");
}

// Files without the key have sparsity in the first ten layers, at the quantile 0.95.
void read_sparsity(SpecReader& reader, ModelSpec& spec) {
  constexpr std::int64_t kSparseLayers = 10;
  constexpr double kDeviations = 1.6448533535003662;
  const bool has_key = reader.has("activation_sparsity_scale");
  for (std::int64_t i = 0; i < spec.config.num_layers; ++i) {
    FeedForwardSpec& ffn = spec.layers[static_cast<std::size_t>(i)].feed_forward;
    ffn.sparsity_of_sample = !reader.is_translated();
    if (has_key) ffn.sparsity = reader.number("activation_sparsity_scale", i);
    if (!has_key && i < kSparseLayers) ffn.sparsity = kDeviations;
    // Minus infinity: all inputs count.
    if (ffn.sparsity && !std::isfinite(*ffn.sparsity)) ffn.sparsity.reset();
  }
}

}  // namespace

void read_gemma4(SpecReader& reader, ModelSpec& spec) {
  read_gemma(reader, spec);
  spec.logit_softcap = reader.number("final_logit_softcapping").value_or(30.0);
  use_sandwich_norms(spec);
  read_attention(reader, spec, reader.read_windows(spec, 6, true));
  read_per_layer_size(reader, spec);
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

void read_gemma3n(SpecReader& reader, ModelSpec& spec) {
  constexpr std::int64_t kLayersWithOwnKv = 20;
  read_gemma(reader, spec);
  spec.logit_softcap = reader.number("final_logit_softcapping").value_or(30.0);
  use_sandwich_norms(spec);
  const std::vector<bool> slides = reader.read_windows_with_rope(spec, 5, false, 10000.0);
  const std::int64_t unstated = std::max<std::int64_t>(0, spec.config.num_layers - kLayersWithOwnKv);
  const std::int64_t shared = reader.integer("attention.shared_kv_layers").value_or(unstated);
  share_kv(reader, spec, slides, shared);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale = 1.0;
    layer.attention.value_norm = true;
    layer.attention.qk_norm = QkNorm::kPerHead;
  }
  read_per_layer_size(reader, spec);
  read_streams(reader, spec);
  read_sparsity(reader, spec);
}

// --- Hugging Face ----------------------------------------------------------------------------------------------------

namespace {

// If the layers are not listed, every sixth one sees the whole context; the last one always does.
void list_gemma4_layers(HfTranslation& t) {
  constexpr std::int64_t kPeriod = 6;
  std::vector<std::string> types = t.layer_types();
  for (std::int64_t i = std::ssize(types); i < t.num_layers(); ++i)
    types.emplace_back((i + 1) % kPeriod == 0 ? "full_attention" : "sliding_attention");
  if (!types.empty()) types.back() = "full_attention";
  t.set_layer_types(std::move(types));
  t.set("attention.sliding_window_pattern", t.layers_of({"sliding_attention"}));
}

}  // namespace

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

}  // namespace quire
