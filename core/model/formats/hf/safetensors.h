// SafetensorsFile: one safetensors file mapped read-only, its header checked before use. Immutable after construction;
// any thread. Source: the safetensors format description. Invariant: every tensor lies within the file, none overlaps
// another, and its bytes are its shape times its type's size.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/formats/files/mapped_file.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

// Parses the bytes of a whole file. Throws StartupError: one line with `name` and the fault. The tensors' data are
// views into `bytes`.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

class SafetensorsFile {
 public:
  // Throws StartupError: one line with the path and the fault.
  explicit SafetensorsFile(const std::filesystem::path& path)
      : mapping_(path), tensors_(parse_safetensors(mapping_.bytes(), path.string())) {}

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const MappedFile& mapping() const { return mapping_; }

 private:
  MappedFile mapping_;
  std::vector<StoredTensor> tensors_;
};

// The safetensors files of a model's directory: model.safetensors, or the shards named by model.safetensors.index.json.
// Throws StartupError also if a shard is missing, a tensor is not in the shard that the index names, or two shards
// contain the same tensor.
std::vector<std::unique_ptr<SafetensorsFile>> open_safetensors_directory(const std::filesystem::path& directory);

}  // namespace quire
