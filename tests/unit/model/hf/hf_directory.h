// Writes a synthetic model as the Hugging Face directory that it would have been converted from. Any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/model/parts/model_config.h"
#include "tests/unit/model/weight_formats.h"

namespace quire::test {

struct HfDirectoryOptions {
  DType type = DType::kF32;                 // F32, F16 or BF16, of the matrices
  int num_shards = 1;                       // 1: model.safetensors alone; more: an index beside the shards
  bool bare_names = false;                  // without "model.", as embedding models are published
  bool head_name_only = false;              // the tied matrix under lm_head.weight
  std::optional<WeightFormat> format = {};  // type of the layers' matrices
  bool decoded = false;                     // values in F32 that the format stands for
};

// `gguf`: a file of F32 matrices. Llama's query and key rows go back from interleaved pairs to halves.
void write_hf_directory(const std::filesystem::path& gguf, const ModelConfig& config, const HfDirectoryOptions& options,
                        const std::filesystem::path& directory);

}  // namespace quire::test
