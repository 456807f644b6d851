#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/message_text.h"
#include "core/model/architectures/spec_reader.h"

namespace quire {

ModelSpec SpecReader::read_plain(RopeStyle style) {
  ModelSpec spec;
  ModelConfig& config = spec.config;
  config.architecture = architecture_;
  config.num_layers = required_integer("block_count");
  config.hidden_size = required_integer("embedding_length");
  config.num_heads = is_array("attention.head_count") ? integer("attention.head_count", 0).value()
                                                      : required_integer("attention.head_count");
  config.num_kv_heads = config.num_heads;
  const std::int64_t even_share = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.head_dim = integer("attention.key_length").value_or(even_share);
  config.max_context = required_integer("context_length");
  auto eps = number("attention.layer_norm_rms_epsilon");
  if (!eps) {
    eps = number("attention.layer_norm_epsilon");
    if (eps) spec.norm = NormKind::kLayer;
  }
  if (!eps) fail(fmt::format("the metadata key '{}' is missing", full("attention.layer_norm_rms_epsilon")));
  config.rms_eps = *eps;
  const bool has_bias = std::ranges::any_of(
      tensors_.tensors(), [](const StoredTensor& tensor) { return tensor.name.ends_with("_norm.bias"); });
  if (spec.norm == NormKind::kRms && has_bias) spec.norm = NormKind::kRmsWithBias;
  const auto& embedding = tensors_.shape_of("token_embd.weight");
  if (embedding.size() != 2) fail("the tensor 'token_embd.weight' is not a matrix");
  config.vocab_size = embedding[0];
  if (const auto stated = integer("vocab_size"); stated && *stated != config.vocab_size) {
    fail(fmt::format("the metadata says {} tokens and the embedding has {}", *stated, config.vocab_size));
  }
  config.tied_head = !tensors_.contains("output.weight");
  spec.is_causal = flag("attention.causal").value_or(true);
  spec.has_classifier_dense = has_tensor("cls.weight");
  if (has_tensor("cls.output.weight")) {
    const auto& shape = tensors_.shape_of("cls.output.weight");
    spec.num_labels = shape.size() == 1 ? 1 : shape.at(0);
  }
  read_dense_sizes(tensors_, spec);
  read_rope(spec, style);
  if (config.num_layers < 1 || config.num_layers > 4096)
    fail(fmt::format("the number of layers is {}, not between 1 and 4096", config.num_layers));
  spec.layers.resize(static_cast<std::size_t>(config.num_layers));
  config.num_kv_heads = 0;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    read_layer(spec, layer);
    const LayerSpec& read = spec.layers[static_cast<std::size_t>(layer)];
    config.num_kv_heads = std::max(config.num_kv_heads, read.attention.num_kv_heads);
    config.ffn_size = std::max(config.ffn_size, read.feed_forward.size);
  }
  return spec;
}

void SpecReader::read_layer(ModelSpec& spec, std::int64_t layer) const {
  const ModelConfig& config = spec.config;
  LayerSpec& to = spec.layers[static_cast<std::size_t>(layer)];
  AttentionSpec& attention = to.attention;
  attention.num_heads = integer("attention.head_count", layer).value_or(config.num_heads);
  attention.num_kv_heads = integer("attention.head_count_kv", layer).value_or(attention.num_heads);
  attention.key_dim = config.head_dim;
  attention.value_dim = integer("attention.value_length").value_or(config.head_dim);
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.key_dim));
  attention.rope = 0;
  attention.fused_qkv = has_tensor(layer, "attn_qkv.weight");
  if (has_tensor(layer, "attn_q_norm.weight")) {
    attention.qk_norm =
        shape_of(layer, "attn_q_norm.weight") == std::vector{attention.key_dim} ? QkNorm::kPerHead : QkNorm::kFullWidth;
  }
  FeedForwardSpec& ffn = to.feed_forward;
  ffn.size = integer("feed_forward_length", layer).value_or(0);
  ffn.is_gated = true;
  if (!has_tensor(layer, "ffn_gate.weight") && has_tensor(layer, "ffn_up.weight")) {
    const auto shape = shape_of(layer, "ffn_up.weight");
    ffn.fused_gate = !shape.empty() && shape[0] == 2 * ffn.size;
  }
  if (!has_tensor(layer, "ffn_norm.weight") && has_tensor(layer, "post_attention_norm.weight"))
    to.ffn_norm = WeightRole::kPostAttentionNorm;
}

void SpecReader::read_rope(ModelSpec& spec, RopeStyle style) {
  ModelConfig& config = spec.config;
  RopeConfig& rope = config.rope;
  rope.style = style;
  rope.rotary_dim = integer("rope.dimension_count").value_or(config.head_dim);
  rope.base = number("rope.freq_base").value_or(10000.0);
  read_rope_scaling(rope, config.max_context);
  if (tensors_.contains("rope_freqs.weight"))
    rope.frequency_divisors = tensors_.take_vector("rope_freqs.weight", rope.rotary_dim / 2);
  read_rope_sections(rope, config.architecture);
  if (tensors_.contains("rope_factors_long.weight")) read_rope_factors(rope, config.max_context);
  spec.ropes.push_back(rope);
}

// Sections of frequencies rotate by time, height and width: one after another, or interleaved (Qwen3-VL).
void SpecReader::read_rope_sections(RopeConfig& rope, const std::string& architecture) {
  if (!has("rope.dimension_sections")) return;
  std::array<std::int64_t, 3> sections{};
  std::int64_t total = 0;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    sections[i] = integer("rope.dimension_sections", static_cast<std::int64_t>(i)).value_or(0);
    total += sections[i];
  }
  if (total == 0) return;
  const bool take_turns = architecture.starts_with("qwen3");
  rope.style = RopeStyle::kHalf;  // with sections, independent of the family's style
  for (std::int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
    const std::int64_t place = i % total;
    std::int64_t axis = 0;
    if (take_turns) {
      axis = place < 3 * sections[static_cast<std::size_t>(place % 3)] ? place % 3 : 0;
    } else {
      axis = place < sections[0] ? 0 : place < sections[0] + sections[1] ? 1 : 2;
    }
    rope.axes.push_back(static_cast<std::uint8_t>(axis));
  }
}

// LongRoPE (arXiv 2402.13753): factors are chosen by the served context, not by a prompt's length, so that a model
// always computes the same.
void SpecReader::read_rope_factors(RopeConfig& rope, std::int64_t max_context) {
  const double original = number("rope.scaling.original_context_length").value_or(0.0);
  const std::int64_t served = wishes_.served_context;
  const std::int64_t context = served > 0 ? std::min(served, max_context) : max_context;
  const bool is_long = original > 0.0 && static_cast<double>(context) > original;
  const auto longer = tensors_.take_vector("rope_factors_long.weight", rope.rotary_dim / 2);
  const auto shorter = tensors_.take_vector("rope_factors_short.weight", rope.rotary_dim / 2);
  rope.frequency_divisors = is_long ? longer : shorter;
  rope.attention_factor = number("rope.scaling.attn_factor").value_or(1.0);
}

void SpecReader::read_rope_scaling(RopeConfig& rope, std::int64_t max_context) {
  // Zero means "none" in published files; scale_linear is the older name.
  double factor = number("rope.scaling.factor").value_or(0.0);
  if (factor == 0.0) factor = number("rope.scale_linear").value_or(0.0);
  rope.factor = factor == 0.0 ? 1.0 : factor;
  std::string type = rope.factor == 1.0 ? "none" : "linear";
  if (has("rope.scaling.type")) type = text("rope.scaling.type").value_or("");
  if (type == "longrope" && tensors_.contains("rope_factors_long.weight")) type = "none";
  const auto original = number("rope.scaling.original_context_length");
  if (type == "none" || type.empty()) return;
  if (type == "linear") {
    rope.original_context = original.value_or(0.0);
    rope.scaling = rope.factor == 1.0 ? RopeScaling::kNone : RopeScaling::kLinear;
    return;
  }
  if (type != "yarn")
    fail(fmt::format("the RoPE scaling type '{}' is not supported (none, linear, yarn)", printable(type)));
  rope.scaling = RopeScaling::kYarn;
  rope.original_context = original.value_or(static_cast<double>(max_context));
  // In other families' files these keys have no meaning.
  constexpr std::string_view kWithBetas[] = {"llama", "qwen2", "qwen3", "mistral3"};
  if (is_translated() || std::ranges::find(kWithBetas, architecture_) != std::end(kWithBetas)) {
    rope.beta_fast = number("rope.scaling.yarn_beta_fast").value_or(rope.beta_fast);
    rope.beta_slow = number("rope.scaling.yarn_beta_slow").value_or(rope.beta_slow);
  }
  rope.truncate = flag("rope.scaling.truncate").value_or(true);
  const auto given =
      has("rope.scaling.attn_factor") ? number("rope.scaling.attn_factor") : number("rope.scaling.yarn_attn_factor");
  // ggml multiplies YaRN's own factor by the file's.
  rope.attention_factor = given.value_or(1.0) * yarn_attention_factor(rope.factor);
}

void SpecReader::read_experts(ModelSpec& spec, std::int64_t default_gating) {
  using Gate = RouteOptions::Gate;
  const std::int64_t num_experts = integer("expert_count").value_or(0);
  if (num_experts == 0) return;
  FeedForwardSpec read;
  read.kind = FeedForwardSpec::Kind::kExperts;
  read.num_experts = num_experts;
  read.route.num_chosen = required_integer("expert_used_count");
  std::int64_t gating = integer("expert_gating_func").value_or(0);
  if (gating == 0) gating = default_gating;
  switch (gating) {
    case kSoftmaxGating: read.route.gate = Gate::kSoftmax; break;
    case kSigmoidGating: read.route.gate = Gate::kSigmoid; break;
    case kSoftmaxOfChosenGating: read.route.gate = Gate::kSoftmaxOfChosen; break;
    default: fail(fmt::format("the expert gating function {} is not supported (1, 2, 3)", gating));
  }
  read.route.normalise = flag("expert_weights_norm").value_or(false);
  const double scale = number("expert_weights_scale").value_or(0.0);  // zero: none
  read.route.scale = scale == 0.0 ? 1.0F : static_cast<float>(scale);
  read.route.num_groups = std::max<std::int64_t>(1, integer("expert_group_count").value_or(1));
  read.route.num_groups_chosen = std::max<std::int64_t>(1, integer("expert_group_used_count").value_or(1));
  const std::int64_t first = integer("leading_dense_block_count").value_or(0);
  if (first < 0) fail("'leading_dense_block_count' is negative");
  for (std::int64_t layer = first; layer < spec.config.num_layers; ++layer) {
    if (!has_tensor(layer, "ffn_gate_inp.weight")) continue;
    FeedForwardSpec& to = spec.layers[static_cast<std::size_t>(layer)].feed_forward;
    const FeedForwardSpec dense = to;
    to = read;
    to.size = dense.size;
    to.activation = dense.activation;
    to.expert_activation = dense.expert_activation;
    to.shared_activation = dense.shared_activation;
    const bool is_stacked = has_tensor(layer, "ffn_down_exps.weight");
    to.expert_size = columns_of(layer, is_stacked ? "ffn_down_exps.weight" : "ffn_down_exps.0.weight");
    to.has_choice_bias = has_tensor(layer, "exp_probs_b.bias");
    to.fused_experts = has_tensor(layer, "ffn_gate_up_exps.weight");
    to.experts_gated =
        to.fused_experts || has_tensor(layer, "ffn_gate_exps.weight") || has_tensor(layer, "ffn_gate_exps.0.weight");
    if (has_tensor(layer, "ffn_up_shexp.weight")) to.shared_size = rows_of(layer, "ffn_up_shexp.weight");
    to.shared_gate = has_tensor(layer, "ffn_gate_inp_shexp.weight");
  }
}

std::vector<bool> SpecReader::read_windows(ModelSpec& spec, std::int64_t period, bool array_counts,
                                           std::int64_t default_window) {
  const std::int64_t window = integer("attention.sliding_window").value_or(default_window);
  const bool by_layer = (array_counts || is_translated()) && is_array("attention.sliding_window_pattern");
  if (!by_layer && !is_array("attention.sliding_window_pattern"))
    period = integer("attention.sliding_window_pattern").value_or(period);
  if (period < 0) fail("'attention.sliding_window_pattern' is negative");
  std::vector<bool> slides;
  for (std::int64_t layer = 0; layer < spec.config.num_layers; ++layer) {
    const bool own = by_layer ? flag("attention.sliding_window_pattern", layer).value_or(false)
                              : period == 0 || layer % period < period - 1;
    slides.push_back(window > 0 && own);
    if (slides.back()) spec.layers[static_cast<std::size_t>(layer)].attention.window = window;
  }
  return slides;
}

std::vector<bool> SpecReader::read_windows_with_rope(ModelSpec& spec, std::int64_t period, bool array_counts,
                                                     double base) {
  std::vector<bool> slides = read_windows(spec, period, array_counts);
  const int id = add_rope(spec, local_rope(spec, base));
  for (std::size_t i = 0; i < slides.size(); ++i) {
    if (slides[i]) spec.layers[i].attention.rope = id;
  }
  return slides;
}

RopeConfig SpecReader::local_rope(const ModelSpec& spec, double base) const {
  RopeConfig local = spec.ropes[0];
  local.base = number("rope.freq_base_swa").value_or(base);
  local.rotary_dim = integer("rope.dimension_count_swa").value_or(local.rotary_dim);
  local.scaling = RopeScaling::kNone;
  local.attention_factor = 1.0;
  local.frequency_divisors.clear();
  return local;
}

int SpecReader::add_rope(ModelSpec& spec, const RopeConfig& rope) {
  spec.ropes.push_back(rope);
  return static_cast<int>(spec.ropes.size()) - 1;
}

void SpecReader::drop_next_token_layers(ModelSpec& spec) {
  const std::int64_t count = integer("nextn_predict_layers").value_or(0);
  if (count < 0 || count >= spec.config.num_layers) fail("'nextn_predict_layers' leaves no layer");
  for (std::int64_t layer = spec.config.num_layers - count; layer < spec.config.num_layers; ++layer)
    tensors_.ignore(fmt::format("blk.{}.", layer), kNextTokenLayers);
  spec.config.num_layers -= count;
  spec.layers.resize(static_cast<std::size_t>(spec.config.num_layers));
}

bool SpecReader::keeps_next_token_layer() const {
  return wishes_.next_tokens && integer("nextn_predict_layers").value_or(0) == 1 && !is_translated();
}

void SpecReader::take_next_token_layer(ModelSpec& spec) const {
  if (spec.config.num_layers < 2) fail("'nextn_predict_layers' leaves no layer");
  for (const char* own : {"embed_tokens", "shared_head_head"})
    tensors_.ignore(fmt::format("blk.{}.nextn.{}.", spec.config.num_layers - 1, own),
                    "an MTP block's own embedding or head");
  spec.next_tokens = spec.layers.back();
  spec.layers.pop_back();
  --spec.config.num_layers;
}

}  // namespace quire
