// Joins the tensors that make one weight of a quantised Hugging Face checkpoint (quants, scales, zeros, order) into one
// StoredTensor named like the weight of the checkpoint before. Any thread. Invariant: shapes are checked before
// anything is read, so that row makers need not.
#pragma once

#include <string>
#include <vector>

#include "core/model/formats/quant_config.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

// Throws StartupError naming a tensor that is missing, of another shape, or would not be exact. Tensors that are not
// quantised stay as they are.
std::vector<StoredTensor> join_quantized(std::vector<StoredTensor> tensors, const QuantConfig& config,
                                         const std::string& where);

}  // namespace quire
