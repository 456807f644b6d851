// The AMX levels: products of 16-bit weights, or also of quantised ones and attention, on bf16 tiles; all else as on
// AVX-512.
#include "kernels/cpu/simd/simd_avx512.h"

#include "kernels/cpu/levels/amx_table.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire {

const LevelAdditions kAvx512AmxAdditions = make_avx512amx_additions<HardwareTiles>();
const LevelAdditions kAmxAdditions = make_amx_additions<HardwareTiles, HardwareLeftTiles>();

}  // namespace quire
