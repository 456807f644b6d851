// The AMX level: matrix products and attention on bf16 tiles, all else as on AVX-512.
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/isa_levels.h"

namespace quire {

const LevelAdditions kAmxAdditions = make_amx_additions<HardwareTiles, HardwareLeftTiles>();

}  // namespace quire
