// The AMX level: matrix products and attention on bf16 tiles, all else as on AVX-512.
#include "kernels/cpu/simd/simd_avx512.h"

#include "kernels/cpu/levels/amx_table.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire {

const LevelAdditions kAmxAdditions = make_amx_additions<HardwareTiles, HardwareLeftTiles>();

}  // namespace quire
