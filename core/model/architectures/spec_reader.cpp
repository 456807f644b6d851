#include "core/model/architectures/spec_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

// Keys that do not change results: for other readers, for people, or sizes that the tensors show.
constexpr std::string_view kHarmlessSettings[] = {"context_length",
                                                  "vocab_size",
                                                  "rope.scaling.finetuned",
                                                  "pooling_type",
                                                  "classifier.output_labels",
                                                  "tensor_data_layout",
                                                  "token_type_count",
                                                  "embedding_length_out",
                                                  "dense_2_feat_in",
                                                  "dense_2_feat_out",
                                                  "dense_3_feat_in",
                                                  "dense_3_feat_out",
                                                  "expert_feed_forward_length",
                                                  "expert_shared_feed_forward_length",
                                                  "expert_shared_count"};

// Keys set only by the translation of another format.
constexpr std::string_view kOwnSettings[] = {"translated", "headless", "exact_gelu"};

// Keys without meaning if there are no experts.
constexpr std::string_view kOfExperts =
    "expert_used_count expert_gating_func expert_weights_norm expert_weights_scale expert_group_count "
    "expert_group_used_count";

// Values that are computed if a family does not read the key.
struct Default {
  std::string_view key;
  double value;
};
constexpr Default kDefaults[] = {{"rope.scaling.yarn_beta_fast", 32.0},
                                 {"rope.scaling.yarn_beta_slow", 1.0},
                                 {"rope.scaling.yarn_ext_factor", 1.0},
                                 {"rope.scaling.yarn_attn_factor", 1.0}};

bool contains_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view first = words.substr(0, words.find(' '));
    if (first == word) return true;
    words.remove_prefix(std::min(first.size() + 1, words.size()));
  }
  return false;
}

template <class T>
bool is_uniform(const std::vector<T>& values) {
  for (const auto& value : values) {
    if (value != values.front()) return false;
  }
  return !values.empty();
}

}  // namespace

SpecReader::SpecReader(const GgufFile& file, TensorTable& tensors, std::string architecture, const SpecWishes& wishes)
    : file_(file),
      tensors_(tensors),
      architecture_(std::move(architecture)),
      prefix_(architecture_ + "."),
      wishes_(wishes) {}

void SpecReader::fail(const std::string& what) const {
  throw StartupError(fmt::format("{}: {}", tensors_.where(), what));
}

const GgufValue* SpecReader::find(std::string_view key) const {
  read_.emplace(key);
  return file_.find(full(key));
}

bool SpecReader::has(std::string_view key) const {
  return find(key) != nullptr;
}

bool SpecReader::is_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value != nullptr && is_list(*value);
}

std::optional<std::int64_t> SpecReader::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto number = integer_of(*value)) return number;
  const auto uniform = [&](const auto& values) -> std::int64_t {
    if (!is_uniform(values))
      fail(fmt::format("the metadata key '{}' differs from layer to layer, which is not supported", full(key)));
    return static_cast<std::int64_t>(values.front());
  };
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) return uniform(*list);
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(value)) return uniform(*list);
  return file_.get_int(full(key));  // refuses a value of another kind
}

std::int64_t SpecReader::required_integer(std::string_view key) const {
  const auto value = integer(key);
  if (!value) fail(fmt::format("the metadata key '{}' is missing", full(key)));
  return *value;
}

std::optional<double> SpecReader::number(std::string_view key) const {
  find(key);
  return file_.get_float(full(key));
}

std::optional<bool> SpecReader::flag(std::string_view key) const {
  find(key);
  return file_.get_bool(full(key));
}

std::optional<std::string> SpecReader::text(std::string_view key) const {
  find(key);
  const auto value = file_.get_string(full(key));
  return value ? std::optional(std::string(*value)) : std::nullopt;
}

namespace {

template <class T>
std::optional<T> element(const GgufValue& value, std::int64_t layer) {
  const auto at = static_cast<std::size_t>(layer);
  std::optional<T> out;
  std::visit(
      [&](const auto& list) {
        using List = std::decay_t<decltype(list)>;
        if constexpr (std::is_same_v<List, std::vector<std::int64_t>> ||
                      std::is_same_v<List, std::vector<std::uint64_t>> || std::is_same_v<List, std::vector<double>> ||
                      std::is_same_v<List, std::vector<bool>>) {
          if (at < list.size()) out = static_cast<T>(list[at]);
        }
      },
      value);
  return out;
}

}  // namespace

std::optional<std::int64_t> SpecReader::integer(std::string_view key, std::int64_t layer) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !is_list(*value)) return integer(key);
  const auto own = element<std::int64_t>(*value, layer);
  if (!own) fail(fmt::format("the metadata key '{}' has no number for layer {}", full(key), layer));
  return own;
}

std::optional<double> SpecReader::number(std::string_view key, std::int64_t layer) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !is_list(*value)) return number(key);
  const auto own = element<double>(*value, layer);
  if (!own) fail(fmt::format("the metadata key '{}' has no number for layer {}", full(key), layer));
  return own;
}

std::optional<bool> SpecReader::flag(std::string_view key, std::int64_t layer) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !is_list(*value)) return flag(key);
  const auto own = element<std::int64_t>(*value, layer);
  if (!own) fail(fmt::format("the metadata key '{}' has no value for layer {}", full(key), layer));
  return *own != 0;
}

std::optional<double> SpecReader::global_number(const std::string& key, std::int64_t layer) const {
  const GgufValue* value = file_.find(key);
  if (value == nullptr || !is_list(*value)) return file_.get_float(key);
  return element<double>(*value, layer);
}

bool SpecReader::has_tensor(std::int64_t layer, std::string_view stem) const {
  return has_tensor(fmt::format("blk.{}.{}", layer, stem));
}

std::vector<std::int64_t> SpecReader::shape_of(std::int64_t layer, std::string_view stem) const {
  return tensors_.shape_of(fmt::format("blk.{}.{}", layer, stem));
}

std::int64_t SpecReader::rows_of(std::int64_t layer, std::string_view stem) const {
  const auto shape = shape_of(layer, stem);
  if (shape.size() < 2) fail(fmt::format("the tensor 'blk.{}.{}' is no matrix", layer, stem));
  return shape[shape.size() - 2];
}

std::int64_t SpecReader::columns_of(std::int64_t layer, std::string_view stem) const {
  rows_of(layer, stem);
  return shape_of(layer, stem).back();
}

bool SpecReader::says_nothing(std::string_view name, std::string_view ignored) const {
  if (std::ranges::find(kHarmlessSettings, name) != std::end(kHarmlessSettings) || contains_word(ignored, name))
    return true;
  for (const std::string_view tower : {"vision.", "audio.", "mm."}) {
    if (name.starts_with(tower)) return true;
  }
  // Zero and false switch features off; a factor of 1 has no effect.
  const GgufValue& value = *file_.find(full(name));
  const auto number = number_of(value);
  if (flag_of(value) == false || number == 0.0 || (number == 1.0 && std::holds_alternative<double>(value))) return true;
  if (contains_word(kOfExperts, name) && integer("expert_count").value_or(0) == 0) return true;
  return std::ranges::any_of(kDefaults, [&](const Default& row) { return row.key == name && row.value == number; });
}

void SpecReader::refuse_unread(std::string_view ignored) const {
  const std::set<std::string, std::less<>> known = read_;
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with(prefix_)) continue;
    const std::string_view name = key.substr(prefix_.size());
    const auto is_own = [](std::string_view other) {
      return std::ranges::find(kOwnSettings, other) != std::end(kOwnSettings);
    };
    if (known.contains(name) || is_own(name) || says_nothing(name, ignored)) continue;
    if (wishes_.ignore_unknown_keys) {
      tensors_.warn(fmt::format("the metadata key '{}' is not known and is ignored", printable(key)));
      continue;
    }
    std::string_view nearest;
    for (const std::string_view other : known) {
      if (!is_own(other) && (nearest.empty() || spelling_distance(name, other) < spelling_distance(name, nearest)))
        nearest = other;
    }
    fail(
        fmt::format("the metadata key '{}' is not supported: it may change what the model computes; the nearest known "
                    "one is '{}'; {}",
                    printable(key), full(nearest), kWayOutOfUnknownKeys));
  }
}

}  // namespace quire
