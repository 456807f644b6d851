// The blocks of GGUF's IQ1, IQ2 and IQ3 types, whose codes are looked up in code books. Any thread. Source: ggml's
// block definitions. Invariant: a code is a level and a sign as code_values(table) lists them.
#pragma once

#include "kernels/formats/quant_blocks.h"

namespace quire {

// split_quant_group of these types.
void split_grid_group(DType type, const std::uint8_t* block, int group, QuantGroup& out);

}  // namespace quire
