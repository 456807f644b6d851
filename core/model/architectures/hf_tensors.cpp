// A Hugging Face checkpoint's tensors under GGUF's names and in GGUF's forms.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/result.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/spec_reader.h"
#include "core/model/formats/hf/json_file.h"
#include "core/model/formats/row_makers.h"
#include "core/model/formats/tensor_table.h"
#include "core/model/parts/weight_roles.h"

namespace quire {

namespace {

using nlohmann::json;

std::map<std::string, std::string, std::less<>> hf_stems(const HfFamily& family) {
  std::map<std::string, std::string, std::less<>> out;
  for (int i = 0; i < kNumWeightRoles; ++i) {
    const RoleInfo& info = role_info(static_cast<WeightRole>(i));
    // Two roles share this stem; the suffix tells them apart.
    const bool is_scale = info.suffix == ".scale";
    if (!info.hf.empty()) out.emplace(std::string(info.gguf) + (is_scale ? ".scale" : ""), info.hf);
  }
  std::string_view rest = family.names;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(' '));
    const std::size_t equal = pair.find('=');
    out[std::string(pair.substr(0, equal))] = pair.substr(equal + 1);
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return out;
}

// Maps GGUF's name of a tensor to the file's.
class HfNames {
 public:
  // `tensors` must outlive this. `has_head`: the head is a tensor of its own.
  HfNames(const HfFamily& family, std::string prefix, const TensorTable& tensors, bool has_head)
      : stems_(hf_stems(family)),
        prefix_(std::move(prefix)),
        layers_(family.layers),
        tensors_(&tensors),
        has_head_(has_head) {}

  std::string operator()(const std::string& gguf) const {
    Parts parts;
    std::string_view rest = gguf;
    if (rest.starts_with("blk.")) {
      const std::size_t dot = rest.find('.', 4);
      parts.layer = fmt::format("{}.{}.", layers_, rest.substr(4, dot - 4));
      rest.remove_prefix(dot + 1);
    }
    const std::size_t dot = rest.rfind('.');
    parts.suffix = dot == std::string_view::npos ? "" : rest.substr(dot);
    parts.stem = rest.substr(0, dot);
    auto found = stems_.find(parts.stem + parts.suffix);  // "ffn_gate_inp.scale"
    parts.by_suffix = found != stems_.end();
    if (!parts.by_suffix) found = stems_.find(parts.stem);
    if (const std::size_t number = parts.stem.rfind('.'); found == stems_.end() && number != std::string::npos) {
      parts.expert = parts.stem.substr(number + 1);
      found = stems_.find(parts.stem.substr(0, number));
    }
    if (found == stems_.end()) return gguf;
    std::string_view choices = found->second;
    std::string named = gguf;
    while (!choices.empty()) {
      const std::string_view choice = choices.substr(0, choices.find('|'));
      choices.remove_prefix(std::min(choice.size() + 1, choices.size()));
      named = name_of(parts, std::string(choice), gguf);
      if (tensors_->stores(named)) break;
    }
    return named;
  }

 private:
  struct Parts {
    std::string layer;
    std::string stem;
    std::string suffix;
    std::string expert;
    bool by_suffix = false;
  };

  std::string name_of(const Parts& parts, std::string name, const std::string& gguf) const {
    std::string suffix = parts.suffix;
    if (const std::size_t number = name.find('#'); number != std::string::npos) {
      if (parts.expert.empty()) return gguf;
      name.replace(number, 1, parts.expert);
    } else if (!parts.expert.empty()) {
      return gguf;
    }
    if (name.ends_with('$')) {
      // A name ending in '$' stands for the weight only, except for roles with a suffix of their own.
      const bool is_whole = parts.by_suffix || suffix == ".weight" || suffix.empty() || parts.stem == "exp_probs_b" ||
                            (parts.stem == "ssm_dt" && suffix == ".bias");
      if (!is_whole) return gguf;
      name.pop_back();
      suffix.clear();
    }
    if (name.starts_with('^')) {
      if (parts.stem == "output" && !has_head_) return gguf;
      const bool is_nested = prefix_ == "language_model.model." && parts.stem == "output";
      return (is_nested ? "language_model." : "") + name.substr(1) + suffix;
    }
    return prefix_ + parts.layer + name + suffix;
  }

  std::map<std::string, std::string, std::less<>> stems_;
  std::string prefix_;
  std::string layers_;
  const TensorTable* tensors_;
  bool has_head_;
};

// Rows of a matrix in another order, as a tensor of GGUF's name.
StoredTensor with_rows(const StoredTensor& from, std::string name, const std::vector<std::int64_t>& rows) {
  if (!from.type || from.shape.size() != 2 || from.data.empty())
    throw StartupError(fmt::format("the tensor '{}' cannot be put in another order", from.name));
  const std::size_t row_bytes = dtype_bytes(*from.type, from.shape[1]);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const std::int64_t row : rows) {
    const auto part = from.data.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes);
    bytes->insert(bytes->end(), part.begin(), part.end());
  }
  StoredTensor out;
  out.name = std::move(name);
  out.type_name = from.type_name;
  out.type = from.type;
  out.shape = {static_cast<std::int64_t>(rows.size()), from.shape[1]};
  out.data = *bytes;
  out.owner = std::move(bytes);
  return out;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t count) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = begin; i < begin + count; ++i)
    out.push_back(i);
  return out;
}

// [q | k | v.. | z..] for each key head becomes [q.. | k.. | v..] and [z..].
void split_qkvz(const JsonObject& config, TensorTable& tensors, const std::string& layer_prefix, std::int64_t layer) {
  const std::string name = layer_prefix + "linear_attn.in_proj_qkvz.weight";
  if (!tensors.contains(name)) return;
  const std::int64_t heads = config.required_integer("linear_num_key_heads");
  const std::int64_t key = config.required_integer("linear_key_head_dim");
  const std::int64_t value = config.required_integer("linear_num_value_heads") / std::max<std::int64_t>(1, heads) *
                             config.required_integer("linear_value_head_dim");
  const std::int64_t step = 2 * key + 2 * value;
  if (tensors.shape_of(name).at(0) != heads * step) config.fail("the delta net's sizes do not fit its tensors");
  std::vector<std::int64_t> qkv;
  std::vector<std::int64_t> z;
  const auto add = [&](std::vector<std::int64_t>& to, std::int64_t first, std::int64_t count) {
    for (std::int64_t head = 0; head < heads; ++head)
      std::ranges::copy(range(head * step + first, count), std::back_inserter(to));
  };
  add(qkv, 0, key);
  add(qkv, key, key);
  add(qkv, 2 * key, value);
  add(z, 2 * key + value, value);
  const StoredTensor from = tensors.stored(name);
  tensors.add(with_rows(from, fmt::format("blk.{}.attn_qkv.weight", layer), qkv));
  tensors.add(with_rows(from, fmt::format("blk.{}.attn_gate.weight", layer), z));
  tensors.ignore(name);
}

// A matrix [gate | up] of the shared expert, or of the only feed-forward, is split.
void split_shared(TensorTable& tensors, const std::string& layer_prefix, std::int64_t layer) {
  const std::string name = layer_prefix + "shared_mlp.input_linear.weight";
  if (!tensors.contains(name)) return;
  const bool is_shared = tensors.stores(layer_prefix + "block_sparse_moe.router.layer.weight");
  const std::string_view kind = is_shared ? "_shexp" : "";
  const StoredTensor from = tensors.stored(name);
  const std::int64_t half = from.shape.at(0) / 2;
  tensors.add(with_rows(from, fmt::format("blk.{}.ffn_gate{}.weight", layer, kind), range(0, half)));
  tensors.add(with_rows(from, fmt::format("blk.{}.ffn_up{}.weight", layer, kind), range(half, half)));
  tensors.ignore(name);
}

// Experts stored as [experts][inputs][outputs], or in blocks of rows, under the names of a stack's parameter. If
// outputs are paired, gate and up alternate.
void turn_experts(TensorTable& tensors, const HfFamily& family, const std::string& stem, std::string gguf_stem,
                  bool is_paired) {
  const std::string bias_name = stem + "_bias";
  const StoredTensor from = tensors.stored(stem);
  if (!from.type || from.shape.size() != 3) throw StartupError(fmt::format("the tensor '{}' is no stack", stem));
  StackedTensors stacked{.type = *from.type,
                         .rows = from.shape[1],
                         .cols = from.shape[2],
                         .is_transposed = dtype_info(*from.type).block_size == 1,
                         .is_paired = is_paired && family.pairs_experts,
                         .data = from.data.data(),
                         .maker = from.maker};
  if (stacked.is_transposed) std::swap(stacked.rows, stacked.cols);
  StoredTensor to = from;
  to.name = gguf_stem + ".weight";
  to.shape = {from.shape[0], stacked.rows, stacked.cols};
  to.data = {};
  to.maker = make_stacked_rows(stacked);
  tensors.add(std::move(to));
  if (tensors.contains(bias_name)) {
    const std::vector<float> values = tensors.take_values(bias_name, from.shape[0] * stacked.rows);
    StackedTensors rows{.rows = stacked.rows, .cols = 1, .is_paired = stacked.is_paired};
    rows.data = std::as_bytes(std::span(values)).data();
    const auto maker = make_stacked_rows(rows);
    std::vector<float> ordered(values.size());
    for (std::size_t i = 0; i < ordered.size(); ++i)
      maker->make_row(static_cast<std::int64_t>(i), std::as_writable_bytes(std::span(ordered)).subspan(4 * i).data());
    tensors.add(float_tensor(gguf_stem + ".bias", {from.shape[0], stacked.rows}, std::move(ordered)));
  }
  tensors.ignore(stem);
}

void turn_layer_experts(TensorTable& tensors, const HfFamily& family, const std::string& layer_prefix,
                        std::int64_t layer) {
  const std::string experts = layer_prefix + std::string(family.column_experts);
  if (!tensors.contains(experts + ".gate_up_proj")) return;
  const std::string stem = fmt::format("blk.{}.", layer);
  turn_experts(tensors, family, experts + ".gate_up_proj", stem + "ffn_gate_up_exps", true);
  turn_experts(tensors, family, experts + ".down_proj", stem + "ffn_down_exps", false);
}

// Experts stacked in a matrix by rows; the second product's are [outputs of the first][width].
void stack_flat_experts(const JsonObject& config, TensorTable& tensors, const std::string& layer_prefix,
                        std::int64_t layer) {
  const std::string experts = layer_prefix + "mlp.experts.mlp.";
  if (!tensors.stores(experts + "w1")) return;
  const std::int64_t count = config.required_integer("num_experts");
  for (const bool is_down : {false, true}) {
    StoredTensor tensor = tensors.stored(experts + (is_down ? "w2" : "w1"));
    if (!tensor.type || dtype_info(*tensor.type).block_size != 1 || tensor.shape.size() != 2 || count < 1 ||
        tensor.shape[0] % count != 0)
      throw StartupError(fmt::format("the tensor '{}' is no stack of {} experts", tensor.name, count));
    tensors.ignore(tensor.name);
    const std::int64_t size = tensor.shape[0] / count;
    tensor.name = fmt::format("blk.{}.ffn_{}_exps.weight", layer, is_down ? "down" : "up");
    tensor.shape = is_down ? std::vector{count, tensor.shape[1], size} : std::vector{count, size, tensor.shape[1]};
    if (is_down) {
      tensor.maker = make_stacked_rows({.type = *tensor.type,
                                        .rows = tensor.shape[1],
                                        .cols = size,
                                        .is_transposed = true,
                                        .data = tensor.data.data()});
      tensor.data = {};
    }
    tensors.add(std::move(tensor));
  }
}

void add_long_rope(const JsonObject& scaling, TensorTable& tensors) {
  for (const auto& [key, name] :
       {std::pair{"short_factor", "rope_factors_short.weight"}, std::pair{"long_factor", "rope_factors_long.weight"}}) {
    const json* list = scaling.find(key);
    if (list == nullptr || !list->is_array()) scaling.fail(std::string("'") + key + "' is missing");
    std::vector<float> values;
    for (const json& value : *list)
      values.push_back(value.is_number() ? value.get<float>() : 0.0F);
    const std::vector<std::int64_t> shape{std::ssize(values)};
    tensors.add(float_tensor(name, shape, std::move(values)));
  }
}

// Adds Llama 3's scaling as divisors of the frequencies.
void add_llama3_rope(const JsonObject& config, const JsonObject& scaling, TensorTable& tensors) {
  RopeConfig rope;
  rope.rotary_dim = rotary_dim_of(config);
  rope.base = scaling.number("rope_theta").value_or(config.number("rope_theta").value_or(rope.base));
  const std::vector<double> plain = rope_frequencies(rope).inv_freq;
  rope.scaling = RopeScaling::kLlama3;
  if (!scaling.has("factor")) scaling.fail("'factor' is missing");
  rope.factor = *scaling.number("factor");
  rope.original_context = scaling.number("original_max_position_embeddings").value_or(8192.0);
  rope.low_freq_factor = scaling.number("low_freq_factor").value_or(rope.low_freq_factor);
  rope.high_freq_factor = scaling.number("high_freq_factor").value_or(rope.high_freq_factor);
  check_rope(rope, rope.rotary_dim, scaling.where());
  const std::vector<double> scaled = rope_frequencies(rope).inv_freq;
  std::vector<float> divisors;
  for (std::size_t i = 0; i < plain.size(); ++i)
    divisors.push_back(static_cast<float>(plain[i] / scaled[i]));
  const auto count = std::ssize(divisors);
  tensors.add(float_tensor("rope_freqs.weight", {count}, std::move(divisors)));
}

void add_rope_factors(const JsonObject& config, TensorTable& tensors) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = config.object(key);
    if (!scaling) continue;
    const std::string type = rope_type_of(*scaling);
    if (type == "longrope") return add_long_rope(*scaling, tensors);
    if (type == "llama3") return add_llama3_rope(config, *scaling, tensors);
  }
}

// Gemma 4's full layers rotate by the first of their frequencies only.
void add_proportional_rope(const JsonObject& config, TensorTable& tensors) {
  const auto parameters = config.object("rope_parameters");
  const auto full = parameters ? parameters->object("full_attention") : std::nullopt;
  if (!full || full->text("rope_type").value_or("") != "proportional") return;
  constexpr float kNotRotated = 1e30F;
  const auto half = static_cast<std::size_t>(config.integer("global_head_dim").value_or(0) / 2);
  const auto rotated =
      static_cast<std::size_t>(static_cast<double>(half) * full->number("partial_rotary_factor").value_or(1.0));
  std::vector<float> values(half, kNotRotated);
  std::fill_n(values.begin(), std::min(rotated, half), 1.0F);
  tensors.add(float_tensor("rope_freqs.weight", {static_cast<std::int64_t>(half)}, std::move(values)));
}

// Adds one to norms stored without it, and converts decays stored as logarithms.
void adjust(const HfFamily& family, const std::string& name, std::vector<float>& values) {
  if (name.ends_with("ssm_a")) {
    for (float& value : values)
      value = -std::exp(value);
  }
  const bool is_norm = name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight");
  if (!family.norms_minus_one || !is_norm) return;
  for (float& value : values)
    value += 1.0F;
}

// Blocks that predict further tokens come after the trunk; towers are stored beside it.
void ignore_other_parts(const JsonObject& config, const std::string& layers, std::int64_t num_layers,
                        TensorTable& tensors) {
  const auto further = config.integer("num_nextn_predict_layers").value_or(0);
  for (std::int64_t layer = num_layers; layer < num_layers + std::clamp<std::int64_t>(further, 0, 16); ++layer)
    tensors.ignore(fmt::format("{}.{}.", layers, layer), kNextTokenLayers);
  for (const char* block : {"mtp.", "model.mtp.", "model.mtp_block.", "model.mtp_emb_norm.", "model.mtp_hidden_norm.",
                            "model.mtp_linear_proj."})
    tensors.ignore(block, kNextTokenLayers);
  for (const char* audio : {"model.audio_tower.", "model.embed_audio."})
    tensors.ignore(audio, kAudioPart);
  for (const char* vision : {"model.visual.", "visual.", "vision_tower.", "model.vision_tower.", "vision_model.",
                             "multi_modal_projector.", "model.multi_modal_projector.", "model.embed_vision."})
    tensors.ignore(vision, kVisionPart);
  for (const char* beside :
       {"pooler.", "bert.pooler.", "roberta.pooler.", "embeddings.position_ids", "bert.embeddings.position_ids",
        "roberta.embeddings.position_ids", "cls.predictions.", "cls.seq_relationship.", "decoder."})
    tensors.ignore(beside);
}

}  // namespace

std::vector<std::string> hf_layer_names(std::string_view architecture, WeightRole role) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view choices) {
    while (!choices.empty()) {
      std::string name(choices.substr(0, choices.find('|')));
      choices.remove_prefix(std::min(name.size() + 1, choices.size()));
      if (std::ranges::find(out, name) == out.end()) out.push_back(std::move(name));
    }
  };
  add(role_info(role).hf);
  for (const HfFamily& family : hf_families()) {
    if (family.architecture != architecture) continue;
    const auto stems = hf_stems(family);
    const auto found = stems.find(role_info(role).gguf);
    if (found != stems.end()) add(found->second);
  }
  return out;
}

std::string hf_prefix(const HfFamily& family, const TensorTable& tensors) {
  const std::string stems = hf_stems(family).at("token_embd");
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model.", "backbone.", "bert.",
                             "roberta.", "distilbert.", "nomic_bert.", "transformer.", ""}) {
    for (std::string_view rest = stems; !rest.empty();) {
      const std::string_view stem = rest.substr(0, rest.find('|'));
      rest.remove_prefix(std::min(stem.size() + 1, rest.size()));
      if (tensors.stores(fmt::format("{}{}.weight", prefix, stem))) return prefix;
    }
  }
  // The embedding may be stored under the name of the tied head.
  return tensors.stores("model.norm.weight") ? "model." : "";
}

void translate_hf_tensors(const JsonObject& config, const HfFamily& family, TensorTable& tensors) {
  const std::string prefix = hf_prefix(family, tensors);
  std::int64_t num_layers = 0;
  for (const char* key : {"n_layers", "n_layer", "num_hidden_layers"})
    num_layers = config.integer(key).value_or(num_layers);
  if (num_layers < 1 || num_layers > 4096) config.fail("'num_hidden_layers' is not between 1 and 4096");
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const std::string layer_prefix = fmt::format("{}{}.{}.", prefix, family.layers, layer);
    split_qkvz(config, tensors, layer_prefix, layer);
    split_shared(tensors, layer_prefix, layer);
    stack_flat_experts(config, tensors, layer_prefix, layer);
    if (!family.column_experts.empty()) turn_layer_experts(tensors, family, layer_prefix, layer);
  }
  add_rope_factors(config, tensors);
  add_proportional_rope(config, tensors);
  ignore_other_parts(config, prefix + std::string(family.layers), num_layers, tensors);
  // If a tied head is stored too, it equals the embedding.
  const bool is_tied = config.boolean("tie_word_embeddings").value_or(false);
  if (is_tied) {
    if (const std::string head = "lm_head.weight";
        prefix == "model." && tensors.stores(head) && !tensors.stores("model.embed_tokens.weight")) {
      StoredTensor embedding = tensors.stored(head);
      embedding.name = "token_embd.weight";
      tensors.add(std::move(embedding));
    }
    for (const char* head : {"lm_head.weight", "language_model.lm_head.weight"})
      tensors.ignore(head);
  }
  tensors.set_names(HfNames(family, prefix, tensors, !is_tied));
  tensors.set_adjustment(
      [&family](const std::string& name, std::vector<float>& values) { adjust(family, name, values); });
}

}  // namespace quire
