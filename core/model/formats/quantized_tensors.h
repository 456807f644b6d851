// Joins the tensors of each quantised weight of a Hugging Face checkpoint (quants, scales, zeros, order) into a
// StoredTensor with the unquantised weight's name. Any thread. Invariant: shapes are checked before anything is read,
// so that row makers need not.
#pragma once

#include <string>
#include <vector>

#include "core/model/formats/hf/quant_config.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

// Throws StartupError naming a tensor that is missing, of another shape, or not exactly representable. Unquantised
// tensors are returned unchanged.
std::vector<StoredTensor> join_quantized(std::vector<StoredTensor> tensors, const QuantConfig& config,
                                         const std::string& where);

}  // namespace quire
