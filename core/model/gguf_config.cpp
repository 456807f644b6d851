#include "core/model/gguf_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/base/printable.h"
#include "core/base/result.h"

namespace quire {

namespace {

class Reader {
 public:
  Reader(const GgufFile& file, const std::string& where, std::string architecture)
      : file_(file), where_(where), prefix_(architecture + "."), architecture_(std::move(architecture)) {}

  ModelConfig read() const;

 private:
  [[noreturn]] void fail(const std::string& what) const { throw StartupError(fmt::format("{}: {}", where_, what)); }
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file_.metadata().contains(full(key)); }

  // A key that is there must be of its kind: a wrong kind is not an absent key.
  std::optional<std::int64_t> integer(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    if (const auto value = file_.get_int(full(key))) return value;
    return uniform_integer(key);
  }
  std::int64_t required_integer(std::string_view key) const {
    const auto value = integer(key);
    if (!value) fail(fmt::format("the metadata key '{}' is missing", full(key)));
    return *value;
  }
  std::optional<double> number(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    const auto value = file_.get_float(full(key));
    if (!value) fail(fmt::format("the metadata key '{}' is not a number", full(key)));
    return value;
  }

  std::int64_t uniform_integer(std::string_view key) const;
  void refuse_unsupported() const;
  RopeConfig read_rope(const ModelConfig& config) const;
  void read_rope_scaling(RopeConfig& rope, std::int64_t max_context) const;

  const GgufFile& file_;
  const std::string& where_;
  std::string prefix_;
  std::string architecture_;
};

// Some files hold one number per layer.
std::int64_t Reader::uniform_integer(std::string_view key) const {
  const auto same = [&](const auto& values) {
    const bool uniform = !values.empty() && std::ranges::all_of(values, [&](auto v) { return v == values.front(); });
    if (!uniform)
      fail(fmt::format("the metadata key '{}' differs from layer to layer, which is not supported", full(key)));
    return static_cast<std::int64_t>(values.front());
  };
  const GgufValue& value = file_.metadata().at(full(key));
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) return same(*list);
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(&value)) return same(*list);
  fail(fmt::format("the metadata key '{}' is not a whole number", full(key)));
}

// Keys that change what the model computes and that Quire does not compute.
void Reader::refuse_unsupported() const {
  if (integer("expert_count").value_or(0) != 0) fail("mixture-of-experts models are not supported");
  for (const char* key : {"logit_scale", "residual_scale", "embedding_scale", "attention.scale",
                          "attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv"}) {
    const auto value = number(key);
    if (value && *value != 0.0 && *value != 1.0) fail(fmt::format("the metadata key '{}' is not supported", full(key)));
  }
  if (file_.get_bool(full("attention.causal")) == false) fail("non-causal models are not supported");
  if (file_.get_bool(full("use_parallel_residual")) == true) fail("parallel residuals are not supported");
  if (has("rope.dimension_sections")) fail("multi-dimensional RoPE is not supported");
}

ModelConfig Reader::read() const {
  refuse_unsupported();
  ModelConfig config;
  config.architecture = architecture_;
  config.num_layers = required_integer("block_count");
  config.hidden_size = required_integer("embedding_length");
  config.ffn_size = required_integer("feed_forward_length");
  config.num_heads = required_integer("attention.head_count");
  config.num_kv_heads = integer("attention.head_count_kv").value_or(config.num_heads);
  const std::int64_t even_share = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.head_dim = integer("attention.key_length").value_or(even_share);
  if (integer("attention.value_length").value_or(config.head_dim) != config.head_dim) {
    fail("values of another length than keys are not supported");
  }
  config.max_context = required_integer("context_length");
  // Within the window, attention is the whole context's: a shorter limit keeps the model exact.
  if (const auto window = integer("attention.sliding_window"); window && *window > 0) {
    config.max_context = std::min(config.max_context, *window);
  }
  const auto eps = number("attention.layer_norm_rms_epsilon");
  if (!eps) fail(fmt::format("the metadata key '{}' is missing", full("attention.layer_norm_rms_epsilon")));
  config.rms_eps = *eps;
  config.has_qk_norm = architecture_ == "qwen3";
  config.rope = read_rope(config);
  return config;
}

RopeConfig Reader::read_rope(const ModelConfig& config) const {
  RopeConfig rope;
  rope.style = architecture_ == "llama" ? RopeStyle::kInterleaved : RopeStyle::kHalf;
  rope.rotary_dim = integer("rope.dimension_count").value_or(config.head_dim);
  rope.base = number("rope.freq_base").value_or(10000.0);
  read_rope_scaling(rope, config.max_context);
  return rope;
}

void Reader::read_rope_scaling(RopeConfig& rope, std::int64_t max_context) const {
  // Zero means "none" in published files; scale_linear is the older name.
  double factor = number("rope.scaling.factor").value_or(0.0);
  if (factor == 0.0) factor = number("rope.scale_linear").value_or(0.0);
  rope.factor = factor == 0.0 ? 1.0 : factor;
  std::string_view type = rope.factor == 1.0 ? "none" : "linear";
  if (has("rope.scaling.type")) {
    const auto named = file_.get_string(full("rope.scaling.type"));
    if (!named) fail(fmt::format("the metadata key '{}' is not a string", full("rope.scaling.type")));
    type = *named;
  }
  if (type == "none" || type.empty()) return;
  if (type == "linear") {
    rope.scaling = rope.factor == 1.0 ? RopeScaling::kNone : RopeScaling::kLinear;
    return;
  }
  if (type != "yarn")
    fail(fmt::format("the RoPE scaling type '{}' is not supported (none, linear, yarn)", printable(type)));
  rope.scaling = RopeScaling::kYarn;
  rope.original_context = number("rope.scaling.original_context_length").value_or(static_cast<double>(max_context));
  rope.beta_fast = number("rope.scaling.yarn_beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = number("rope.scaling.yarn_beta_slow").value_or(rope.beta_slow);
  const auto given =
      has("rope.scaling.attn_factor") ? number("rope.scaling.attn_factor") : number("rope.scaling.yarn_attn_factor");
  // ggml multiplies YaRN's own factor by the file's.
  rope.attention_factor = given.value_or(1.0) * yarn_attention_factor(rope.factor);
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file, const std::string& where) {
  const auto architecture = file.get_string("general.architecture");
  if (!architecture) throw StartupError(fmt::format("{}: the metadata key 'general.architecture' is missing", where));
  if (std::ranges::find(kArchitectures, *architecture) == kArchitectures.end()) {
    throw StartupError(fmt::format("{}: the architecture '{}' is not supported (supported: llama, qwen2, qwen3)", where,
                                   printable(*architecture)));
  }
  return Reader(file, where, std::string(*architecture)).read();
}

}  // namespace quire
