#include "core/model/tools/synth_families.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <sstream>

#include "core/base/result.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

struct ShortKey {
  std::string_view name;
  std::string_view key;
};
constexpr ShortKey kShortKeys[] = {{"L", "block_count"},
                                   {"d", "embedding_length"},
                                   {"ff", "feed_forward_length"},
                                   {"h", "attention.head_count"},
                                   {"kv", "attention.head_count_kv"},
                                   {"hd", "attention.key_length"},
                                   {"v", "vocab_size"},
                                   {"ctx", "context_length"},
                                   {"rot", "rope.dimension_count"},
                                   {"base", "rope.freq_base"},
                                   {"win", "attention.sliding_window"},
                                   {"E", "expert_count"},
                                   {"top", "expert_used_count"},
                                   {"fe", "expert_feed_forward_length"},
                                   {"fs", "expert_shared_feed_forward_length"},
                                   {"eps", "attention.layer_norm_rms_epsilon"},
                                   {"leps", "attention.layer_norm_epsilon"}};

[[noreturn]] void fail(std::string_view text) {
  throw StartupError(fmt::format("synthetic model: '{}' is not understood", text));
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> out;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, by);) {
    if (!part.empty()) out.push_back(part);
  }
  return out;
}

std::int64_t integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail(text);
  return value;
}

class TextMetadata final : public GgufFile {
 public:
  TextMetadata(const std::string& architecture, const std::string& keys)
      : where_("shape of " + architecture), prefix_(architecture + ".") {
    metadata_["general.architecture"] = keep(architecture);
    for (const std::string& pair : split(keys, ' ')) {
      const std::size_t equal = pair.find('=');
      if (equal == std::string::npos) fail(pair);
      set(pair.substr(0, equal), pair.substr(equal + 1));
    }
  }

  // Later keys replace earlier ones; a key without a value is removed.
  void set(const std::string& name, const std::string& text) {
    const auto* found = std::ranges::find(kShortKeys, name, &ShortKey::name);
    const std::string key = found == std::end(kShortKeys) ? name : std::string(found->key);
    const bool is_global = key.starts_with("xielu.") || key.starts_with("tokenizer.");
    const std::string full = is_global ? key : prefix_ + key;
    if (text.empty()) {
      metadata_.erase(full);
      return;
    }
    metadata_[keep(full)] = value_of(text);
    if (name == "hd") metadata_[keep(prefix_ + "attention.value_length")] = value_of(text);
    if (found != std::end(kShortKeys) && !text.starts_with('[') && text.find_first_of(".e") == std::string::npos)
      numbers_[name] = integer(text);
  }

  // A number, a short key, or a product "2*d".
  std::int64_t size(const std::string& text) const {
    std::int64_t product = 1;
    for (const std::string& factor : split(text, '*')) {
      const auto found = numbers_.find(factor);
      product *= found == numbers_.end() ? integer(factor) : found->second;
    }
    return product;
  }

  const std::map<std::string_view, GgufValue>& metadata() const override { return metadata_; }
  const std::vector<GgufTensor>& tensors() const override { return tensors_; }
  const GgufTensor* find_tensor(std::string_view) const override { return nullptr; }
  std::uint32_t version() const override { return 0; }
  std::uint64_t file_bytes() const override { return 0; }
  const std::string& where() const override { return where_; }
  void release(std::span<const std::byte>) const override {}

 private:
  std::string_view keep(const std::string& text) { return texts_.emplace_back(text); }

  GgufValue value_of(const std::string& text) {
    if (text == "true" || text == "false") return text == "true";
    if (text.starts_with('[')) {
      std::vector<std::int64_t> list;
      for (const std::string& part : split(std::string_view(text).substr(1, text.size() - 2), ','))
        list.push_back(integer(part));
      return list;
    }
    if (text.find_first_not_of("-0123456789") == std::string::npos) return GgufValue(integer(text));
    if (text.find_first_not_of("-+.e0123456789") == std::string::npos) return std::stod(text);
    return keep(text);
  }

  const std::string where_;
  std::string prefix_;
  std::deque<std::string> texts_;
  std::map<std::string_view, GgufValue> metadata_;
  std::map<std::string, std::int64_t> numbers_;
  std::vector<GgufTensor> tensors_;
};

// "2-", "3/4", "!3/4"; nothing: every layer.
bool is_chosen(std::string_view layers, std::int64_t layer) {
  if (layers.empty()) return true;
  if (layers.ends_with('-')) return layer >= integer(layers.substr(0, layers.size() - 1));
  const bool is_negated = layers.starts_with('!');
  if (is_negated) layers.remove_prefix(1);
  const std::size_t slash = layers.find('/');
  if (slash == std::string_view::npos) return (layer == integer(layers)) != is_negated;
  return (layer % integer(layers.substr(slash + 1)) == integer(layers.substr(0, slash))) != is_negated;
}

// The tensors that a family looks for, without data.
std::vector<StoredTensor> stubs(const TextMetadata& metadata, const std::string& parts) {
  std::vector<StoredTensor> out;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    if (name.starts_with("rope_")) {
      out.push_back(float_tensor(name, shape, synth_rope_factors(name, shape.at(0))));
      return;
    }
    StoredTensor& tensor = out.emplace_back();
    tensor.name = name;
    tensor.type_name = "F32";
    tensor.type = DType::kF32;
    tensor.shape = shape;
  };
  add("token_embd.weight", {metadata.size("v"), metadata.size("d")});
  for (const std::string& part : split(parts, ' ')) {
    const std::size_t at = part.find('@');
    const std::vector<std::string> halves = split(part.substr(0, at), ':');
    std::vector<std::int64_t> shape;
    if (halves.size() > 1) {
      for (const std::string& dim : split(halves[1], ','))
        shape.push_back(metadata.size(dim));
    }
    std::string stem = halves.at(0);
    const bool is_of_model = stem.starts_with('^');
    if (is_of_model) stem.erase(0, 1);
    if (!stem.ends_with(".bias") && !stem.ends_with(".scale")) stem += ".weight";
    if (is_of_model) add(stem, shape);
    for (std::int64_t layer = 0; !is_of_model && layer < metadata.size("L"); ++layer) {
      if (is_chosen(at == std::string::npos ? "" : std::string_view(part).substr(at + 1), layer))
        add(fmt::format("blk.{}.{}", layer, stem), shape);
    }
  }
  return out;
}

}  // namespace

std::vector<float> synth_rope_factors(std::string_view tensor, std::int64_t count) {
  const float step = tensor.starts_with("rope_factors_long") ? 0.5F : 0.125F;
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(1.0F + step * static_cast<float>(i));
  return out;
}

SynthFamily read_family_shape(const FamilyShape& shape) {
  const auto metadata = std::make_shared<TextMetadata>(shape.architecture, shape.keys);
  std::string parts = shape.parts;
  if (shape.next_tokens) {
    const std::int64_t num_layers = metadata->size("L");
    metadata->set("L", std::to_string(num_layers + 1));
    metadata->set("nextn_predict_layers", "1");
    parts += fmt::format(" attn_q_norm:hd@{}", num_layers);
  }
  TensorTable tensors("synthetic " + shape.architecture, stubs(*metadata, parts));
  SynthFamily out;
  out.spec = read_spec(*metadata, tensors, {.next_tokens = shape.next_tokens});
  if (shape.next_tokens && !out.spec.next_tokens)
    throw StartupError("synthetic " + shape.architecture + ": no block of this family predicts further tokens");
  out.metadata = metadata;
  return out;
}

}  // namespace quire
