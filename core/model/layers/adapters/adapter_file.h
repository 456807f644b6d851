// AdapterFile: the tensors of a LoRA adapter's file by the matrix that each pair changes: GGUF as llama.cpp's converter
// writes it, or a directory of PEFT (adapter_config.json beside adapter_model.safetensors). One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/formats/tensor_table.h"

namespace quire {

// The two matrices of a change.
struct AdapterPair {
  const StoredTensor* down = nullptr;
  const StoredTensor* up = nullptr;
  std::string module{};  // the changed matrix's whole name
};

struct AdapterFile {
  std::string where;
  std::shared_ptr<const void> owner;
  std::vector<StoredTensor> tensors;
  std::function<double(const std::string& module, std::int64_t rank)> scale;
  std::string gguf_architecture;  // empty: a PEFT directory

  bool is_gguf() const { return !gguf_architecture.empty(); }
  // Pairs by the changed matrix's name: GGUF's, or PEFT's from "layers" on ("layers.3.self_attn.q_proj", "lm_head").
  std::map<std::string, AdapterPair> pairs() const;
  // A hash of the tensors and of their changes' scales as used, in the order of use.
  std::string content_key(std::span<const float> used_scales) const;
  [[noreturn]] void fail(const std::string& what) const;
};

// Throws StartupError, one line that begins with the path. Unknown settings are refused or ignored.
AdapterFile open_adapter(const std::filesystem::path& path, bool ignore_unknown_keys = false);

}  // namespace quire
