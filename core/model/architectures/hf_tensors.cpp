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
#include "core/model/architectures/weight_roles.h"
#include "core/model/formats/json_file.h"
#include "core/model/formats/row_makers.h"

namespace quire {

namespace {

using nlohmann::json;

std::map<std::string, std::string, std::less<>> hf_stems(const HfFamily& family) {
  std::map<std::string, std::string, std::less<>> out;
  for (int i = 0; i < kNumWeightRoles; ++i) {
    const RoleInfo& info = role_info(static_cast<WeightRole>(i));
    // The suffix decides between two roles of one stem.
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

// What a file calls a tensor of GGUF's name.
class HfNames {
 public:
  HfNames(const HfFamily& family, std::string prefix)
      : stems_(hf_stems(family)), prefix_(std::move(prefix)), is_bert_(family.architecture == "bert") {}

  std::string operator()(const std::string& gguf) const {
    std::string_view rest = gguf;
    std::string layer;
    if (rest.starts_with("blk.")) {
      const std::size_t dot = rest.find('.', 4);
      layer = fmt::format("{}.{}.", is_bert_ ? "encoder.layer" : "layers", rest.substr(4, dot - 4));
      rest.remove_prefix(dot + 1);
    }
    std::size_t dot = rest.rfind('.');
    std::string suffix(dot == std::string_view::npos ? "" : rest.substr(dot));
    std::string stem(rest.substr(0, dot));
    auto found = stems_.find(stem + suffix);  // "ffn_gate_inp.scale"
    const bool by_suffix = found != stems_.end();
    if (!by_suffix) found = stems_.find(stem);
    std::string expert;
    if (found == stems_.end() && (dot = stem.rfind('.')) != std::string::npos) {
      expert = stem.substr(dot + 1);
      found = stems_.find(stem.substr(0, dot));
    }
    if (found == stems_.end() || found->second.empty()) return gguf;
    std::string name = found->second;
    if (const std::size_t number = name.find('#'); number != std::string::npos) {
      if (expert.empty()) return gguf;
      name.replace(number, 1, expert);
    } else if (!expert.empty()) {
      return gguf;
    }
    if (name.ends_with('$')) {
      // What stands beside a tensor without suffix is named by itself.
      const bool is_whole =
          by_suffix || suffix == ".weight" || suffix.empty() || stem == "exp_probs_b" || stem == "ssm_dt";
      if (!is_whole) return gguf;
      name.pop_back();
      suffix.clear();
    }
    if (name == "lm_head") return (prefix_ == "language_model.model." ? "language_model." : "") + name + suffix;
    return prefix_ + layer + name + suffix;
  }

 private:
  std::map<std::string, std::string, std::less<>> stems_;
  std::string prefix_;
  bool is_bert_;
};

std::string find_prefix(const TensorTable& tensors) {
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model.", ""}) {
    if (tensors.contains(std::string(prefix) + "embed_tokens.weight")) return prefix;
  }
  if (tensors.contains("bert.embeddings.word_embeddings.weight")) return "bert.";
  return "";
}

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

StoredTensor floats(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
  auto kept = std::make_shared<std::vector<float>>(std::move(values));
  StoredTensor out;
  out.name = std::move(name);
  out.type_name = "F32";
  out.type = DType::kF32;
  out.shape = std::move(shape);
  out.data = std::as_bytes(std::span(*kept));
  out.owner = std::move(kept);
  return out;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t count) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = begin; i < begin + count; ++i)
    out.push_back(i);
  return out;
}

// [q | k | v.. | z..] for each key head becomes [q.. | k.. | v..] and [z..].
void split_qkvz(const JsonObject& config, TensorTable& tensors, const std::string& prefix, std::int64_t layer) {
  const std::string name = fmt::format("{}layers.{}.linear_attn.in_proj_qkvz.weight", prefix, layer);
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

// One matrix [gate | up] of the shared expert becomes two.
void split_shared(TensorTable& tensors, const std::string& prefix, std::int64_t layer) {
  const std::string name = fmt::format("{}layers.{}.shared_mlp.input_linear.weight", prefix, layer);
  if (!tensors.contains(name)) return;
  const StoredTensor from = tensors.stored(name);
  const std::int64_t half = from.shape.at(0) / 2;
  tensors.add(with_rows(from, fmt::format("blk.{}.ffn_gate_shexp.weight", layer), range(0, half)));
  tensors.add(with_rows(from, fmt::format("blk.{}.ffn_up_shexp.weight", layer), range(half, half)));
  tensors.ignore(name);
}

// Experts that files hold as [experts][inputs][outputs], or in blocks of rows, under the names of a parameter of the
// whole stack. Where outputs are paired, gate and up alternate.
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
    tensors.add(floats(gguf_stem + ".bias", {from.shape[0], stacked.rows}, std::move(ordered)));
  }
  tensors.ignore(stem);
}

void turn_layer_experts(TensorTable& tensors, const HfFamily& family, const std::string& prefix, std::int64_t layer) {
  const std::string experts = fmt::format("{}layers.{}.{}", prefix, layer, family.column_experts);
  if (!tensors.contains(experts + ".gate_up_proj")) return;
  const std::string stem = fmt::format("blk.{}.", layer);
  turn_experts(tensors, family, experts + ".gate_up_proj", stem + "ffn_gate_up_exps", true);
  turn_experts(tensors, family, experts + ".down_proj", stem + "ffn_down_exps", false);
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
    tensors.add(floats(name, shape, std::move(values)));
  }
}

// Llama 3's scaling as what each frequency is divided by.
void add_llama3_rope(const JsonObject& config, const JsonObject& scaling, TensorTable& tensors) {
  RopeConfig rope;
  rope.rotary_dim = rotary_dim_of(config);
  rope.base = scaling.number("rope_theta").value_or(config.number("rope_theta").value_or(rope.base));
  const std::vector<double> plain = rope_frequencies(rope).inv_freq;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = scaling.number("factor").value_or(1.0);
  rope.original_context = scaling.number("original_max_position_embeddings").value_or(8192.0);
  rope.low_freq_factor = scaling.number("low_freq_factor").value_or(rope.low_freq_factor);
  rope.high_freq_factor = scaling.number("high_freq_factor").value_or(rope.high_freq_factor);
  const std::vector<double> scaled = rope_frequencies(rope).inv_freq;
  std::vector<float> divisors;
  for (std::size_t i = 0; i < plain.size(); ++i)
    divisors.push_back(static_cast<float>(plain[i] / scaled[i]));
  const auto count = std::ssize(divisors);
  tensors.add(floats("rope_freqs.weight", {count}, std::move(divisors)));
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

// Gemma 4's full layers rotate a first part of their frequencies only.
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
  tensors.add(floats("rope_freqs.weight", {static_cast<std::int64_t>(half)}, std::move(values)));
}

// Norms that are stored without their one, and decays that are stored as logarithms.
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

}  // namespace

void translate_hf_tensors(const json& parsed, const HfFamily& family, TensorTable& tensors) {
  const JsonObject config(parsed, tensors.where());
  const std::string prefix = find_prefix(tensors);
  const std::int64_t num_layers = config.required_integer("num_hidden_layers");
  if (num_layers < 1 || num_layers > 4096) config.fail("'num_hidden_layers' is not between 1 and 4096");
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    split_qkvz(config, tensors, prefix, layer);
    split_shared(tensors, prefix, layer);
    if (!family.column_experts.empty()) turn_layer_experts(tensors, family, prefix, layer);
  }
  add_rope_factors(config, tensors);
  add_proportional_rope(config, tensors);
  // Blocks that predict further tokens follow the trunk; towers stand beside it.
  const auto further = config.integer("num_nextn_predict_layers").value_or(0);
  for (std::int64_t layer = num_layers; layer < num_layers + std::clamp<std::int64_t>(further, 0, 16); ++layer)
    tensors.ignore(fmt::format("{}layers.{}.", prefix, layer), kNextTokenLayers);
  tensors.ignore("mtp.", kNextTokenLayers);
  for (const char* tower :
       {"model.visual.", "visual.", "vision_tower.", "model.vision_tower.", "model.audio_tower.", "vision_model.",
        "multi_modal_projector.", "model.multi_modal_projector.", "model.embed_vision.", "model.embed_audio."})
    tensors.ignore(tower, "a vision or audio tower");
  for (const char* beside : {"pooler.", "bert.pooler.", "embeddings.position_ids", "bert.embeddings.position_ids"})
    tensors.ignore(beside);
  tensors.set_names(HfNames(family, prefix));
  tensors.set_adjustment(
      [&family](const std::string& name, std::vector<float>& values) { adjust(family, name, values); });
}

}  // namespace quire
