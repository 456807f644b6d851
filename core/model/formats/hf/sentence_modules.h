// The modules of a sentence-transformers directory after its transformer (modules.json). Immutable facts; any thread.
// Invariant: a module that changes the embedding but is not computed is refused by one line, never ignored silently.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/model/formats/hf/safetensors.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

// The files of products after the pooled row. Throws StartupError: a module of another kind, a bias, an activation.
std::vector<std::unique_ptr<SafetensorsFile>> open_dense_modules(const std::filesystem::path& directory);

// Their matrices under GGUF's names: dense_2, dense_3. `files` must outlive the result.
std::vector<StoredTensor> dense_tensors(const std::vector<std::unique_ptr<SafetensorsFile>>& files,
                                        const std::filesystem::path& directory);

}  // namespace quire
