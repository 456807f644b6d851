#include <algorithm>
#include <array>
#include <iterator>

#include "core/base/result.h"
#include "core/model/tools/synth.h"

namespace quire {

namespace {

// A row of the table below; the numbers are those of the models' published configurations.
struct Shape {
  std::string_view name;
  std::string_view architecture;
  std::int64_t num_layers;
  std::int64_t hidden_size;
  std::int64_t num_heads;
  std::int64_t num_kv_heads;
  std::int64_t head_dim;
  std::int64_t ffn_size;
  std::int64_t vocab_size;
  bool tied_head;
  std::int64_t max_context;
  double rope_base;
  double rms_eps;
  bool llama3_rope;
};

constexpr std::array<Shape, 7> kShapes{{
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, true, 32768, 1e6, 1e-6, false},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, true, 131072, 5e5, 1e-5, true},
    {"qwen3-4b", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, true, 40960, 1e6, 1e-6, false},
    {"llama-3-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, false, 8192, 5e5, 1e-5, false},
    {"tiny-llama", "llama", 2, 256, 4, 2, 64, 512, 512, true, 4096, 5e5, 1e-5, false},
    {"tiny-qwen2", "qwen2", 2, 256, 4, 2, 64, 512, 512, true, 4096, 1e6, 1e-6, false},
    {"tiny-qwen3", "qwen3", 2, 256, 4, 2, 64, 512, 512, true, 4096, 1e6, 1e-6, false},
}};

struct Types {
  std::string_view name;
  std::uint32_t file_type;
  DType matrices;
  DType embedding;
  DType sensitive;
};

constexpr std::array<Types, 18> kTypes{{
    {"F32", 0, DType::kF32, DType::kF32, DType::kF32},
    {"F16", 1, DType::kF16, DType::kF16, DType::kF16},
    {"BF16", 32, DType::kBF16, DType::kBF16, DType::kBF16},
    {"Q8_0", 7, DType::kQ8_0, DType::kQ8_0, DType::kQ8_0},
    {"Q4_0", 2, DType::kQ4_0, DType::kQ6_K, DType::kQ4_0},
    {"Q4_1", 3, DType::kQ4_1, DType::kQ6_K, DType::kQ4_1},
    {"Q5_0", 8, DType::kQ5_0, DType::kQ6_K, DType::kQ5_0},
    {"Q5_1", 9, DType::kQ5_1, DType::kQ6_K, DType::kQ5_1},
    {"Q4_K", 14, DType::kQ4_K, DType::kQ6_K, DType::kQ4_K},
    {"Q4_K_M", 15, DType::kQ4_K, DType::kQ6_K, DType::kQ6_K},
    {"Q5_K", 16, DType::kQ5_K, DType::kQ6_K, DType::kQ5_K},
    {"Q5_K_M", 17, DType::kQ5_K, DType::kQ6_K, DType::kQ6_K},
    {"Q6_K", 18, DType::kQ6_K, DType::kQ6_K, DType::kQ6_K},
    {"IQ4_NL", 25, DType::kIQ4_NL, DType::kQ6_K, DType::kIQ4_NL},
    {"IQ4_XS", 30, DType::kIQ4_XS, DType::kQ6_K, DType::kIQ4_XS},
    {"Q3_K_M", 12, DType::kQ3_K, DType::kQ6_K, DType::kQ4_K},
    {"Q2_K", 10, DType::kQ2_K, DType::kQ6_K, DType::kQ3_K},
    {"MXFP4", 38, DType::kMXFP4, DType::kQ8_0, DType::kMXFP4},
}};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table)
    names.emplace_back(row.name);
  return names;
}

}  // namespace

std::vector<std::string> synth_shape_names() {
  std::vector<std::string> names = names_of(kShapes);
  std::ranges::move(family_shape_names(), std::back_inserter(names));
  return names;
}
std::vector<std::string> synth_type_names() {
  return names_of(kTypes);
}

std::optional<SynthTypes> find_synth_types(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kTypes, [&](const Types& row) { return equal_ignoring_case(row.name, name); });
  if (found == kTypes.end()) return std::nullopt;
  return SynthTypes{.name = std::string(found->name),
                    .file_type = found->file_type,
                    .matrices = found->matrices,
                    .embedding = found->embedding,
                    .sensitive = found->sensitive};
}

void keep_layers(SynthSpec& spec, std::int64_t num_layers) {
  spec.config.num_layers = num_layers;
  if (spec.family) spec.family->keys += " L=" + std::to_string(num_layers);
}

void add_next_tokens(SynthSpec& spec) {
  if (!spec.family) throw StartupError("synthetic " + spec.name + ": no block of this family predicts further tokens");
  spec.family->next_tokens = true;
}

std::optional<SynthSpec> find_synth_shape(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kShapes, [&](const Shape& row) { return equal_ignoring_case(row.name, name); });
  SynthSpec spec;
  if (found == kShapes.end()) {
    spec.name = name;
    spec.family = find_family_shape(name);
    return spec.family ? std::optional(spec) : std::nullopt;
  }
  spec.name = found->name;
  ModelConfig& config = spec.config;
  config.architecture = found->architecture;
  config.num_layers = found->num_layers;
  config.hidden_size = found->hidden_size;
  config.ffn_size = found->ffn_size;
  config.num_heads = found->num_heads;
  config.num_kv_heads = found->num_kv_heads;
  config.head_dim = found->head_dim;
  config.vocab_size = found->vocab_size;
  config.max_context = found->max_context;
  config.rms_eps = found->rms_eps;
  config.has_qk_norm = found->architecture == "qwen3";
  config.tied_head = found->tied_head;
  config.rope.style =
      found->architecture == "llama" ? RopeStyle::kInterleaved : RopeStyle::kHalf;  // GGUF's order of rows
  config.rope.rotary_dim = found->head_dim;
  config.rope.base = found->rope_base;
  spec.has_qkv_bias = found->architecture == "qwen2";
  if (found->llama3_rope) {
    config.rope.scaling = RopeScaling::kLlama3;
    config.rope.factor = 32.0;
    config.rope.original_context = 8192.0;
  }
  return spec;
}

}  // namespace quire
