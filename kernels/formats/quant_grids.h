// GGUF's IQ1, IQ2 and IQ3 types: their blocks, and the code books in which an index stands for eight (IQ1, IQ2) or four
// (IQ3) levels. Immutable; any thread. Source: ggml's type and block definitions, re-encoded as level numbers, lowest
// bits first: two bits a value for the levels 8, 25, 43 of IQ2 and -1, 0, 1 of IQ1, three bits for the eight of IQ3.
// Invariant: a code is a level and a sign as code_values(table) lists them.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/formats/quant_blocks.h"

namespace quire {

extern const std::array<std::uint16_t, 256> kGridIQ2XXS;
extern const std::array<std::uint16_t, 512> kGridIQ2XS;
extern const std::array<std::uint16_t, 1024> kGridIQ2S;
extern const std::array<std::uint16_t, 2048> kGridIQ1S;
extern const std::array<std::uint16_t, 256> kGridIQ3XXS;
extern const std::array<std::uint16_t, 512> kGridIQ3S;

// split_quant_group of these types.
void split_grid_group(DType type, const std::uint8_t* block, int group, QuantGroup& out);

}  // namespace quire
