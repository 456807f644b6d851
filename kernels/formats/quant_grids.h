// The code books of GGUF's IQ types: an index stands for eight (IQ1, IQ2) or four (IQ3) levels. Immutable facts; any
// thread. Source: ggml's type definitions, re-encoded as level numbers, lowest bits first: two bits a value for the
// levels 8, 25, 43 of IQ2 and -1, 0, 1 of IQ1, three bits for the eight levels of IQ3.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

extern const std::array<std::uint16_t, 256> kGridIQ2XXS;
extern const std::array<std::uint16_t, 512> kGridIQ2XS;
extern const std::array<std::uint16_t, 1024> kGridIQ2S;
extern const std::array<std::uint16_t, 2048> kGridIQ1S;
extern const std::array<std::uint16_t, 256> kGridIQ3XXS;
extern const std::array<std::uint16_t, 512> kGridIQ3S;

}  // namespace quire
