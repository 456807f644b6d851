// Synthetic models: GGUF files with random finite weights in the shapes of real models, to measure speed and to test
// every type without downloads. Any thread. Invariant: the file depends on the spec only, not on the number of
// threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/parts/model_config.h"
#include "core/model/tools/synth_families.h"

namespace quire {

// Types of a file's matrices, mixed like published files. Names: any DType's, and Q4_K_M, Q5_K_M.
struct SynthTypes {
  std::string name;
  std::uint32_t file_type = 0;  // GGUF's general.file_type
  DType matrices = DType::kF16;
  DType embedding = DType::kF16;  // and the head
  DType sensitive = DType::kF16;  // attention values and FFN down of some layers
};
std::optional<SynthTypes> find_synth_types(std::string_view name);  // case-insensitive
std::vector<std::string> synth_type_names();

struct SynthSpec {
  std::string name;
  std::optional<FamilyShape> family;  // replaces the next two, which serve Llama, Qwen2 and Qwen3
  ModelConfig config;
  bool has_qkv_bias = false;
  SynthTypes types;
  std::uint64_t seed = 1;
};

// Real shapes such as qwen3-4b and qwen3-30b-a3b, and a tiny one for each family ("tiny-gemma3") for tests; types are
// not set.
std::optional<SynthSpec> find_synth_shape(std::string_view name);
std::vector<std::string> synth_shape_names();
// Changes the number of layers.
void keep_layers(SynthSpec& spec, std::int64_t num_layers);
// Adds the block that predicts the token after next. Throws StartupError if the shape belongs to no family;
// write_synthetic_gguf() throws it if the family's files never have the block.
void add_next_tokens(SynthSpec& spec);

// Writes the file, streaming. `progress` (may be empty) receives the tensors done and in all. If a type's block does
// not divide a matrix's rows, the next larger type that fits is used, as in published files. Throws StartupError if the
// spec is impossible (vocabulary below kMinSynthVocab, contradictory shape) or the file cannot be written.
void write_synthetic_gguf(const SynthSpec& spec, const std::filesystem::path& path,
                          const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace quire
