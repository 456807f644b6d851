// The AMX level's logic over emulated tiles on AVX-512, for the tests.
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/isa_levels.h"

namespace quire {

const LevelAdditions kAmxEmulatedAvx512Additions = make_amx_additions<EmulatedTiles, EmulatedLeftTiles>();

}  // namespace quire
