// Tensors of a Hugging Face directory that are not read as they are stored: quantised weights, joined to one
// StoredTensor each, and the modules after a sentence transformer (modules.json). Any thread. Invariants: shapes are
// checked before anything is read, so that row makers need not; a module that changes the embedding but is not computed
// is refused.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/model/formats/hf/quant_config.h"
#include "core/model/formats/hf/safetensors.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

// The quants, scales, zeros and order of each quantised weight as one tensor with the unquantised weight's name. Throws
// StartupError naming a tensor that is missing, of another shape, or not exactly representable. Unquantised
// tensors are returned unchanged.
std::vector<StoredTensor> join_quantized(std::vector<StoredTensor> tensors, const QuantConfig& config,
                                         const std::string& where);

// The files of products after the pooled row. Throws StartupError: a module of another kind, a bias, an activation.
std::vector<std::unique_ptr<SafetensorsFile>> open_dense_modules(const std::filesystem::path& directory);

// Their matrices under GGUF's names: dense_2, dense_3. `files` must outlive the result.
std::vector<StoredTensor> dense_tensors(const std::vector<std::unique_ptr<SafetensorsFile>>& files,
                                        const std::filesystem::path& directory);

}  // namespace quire
