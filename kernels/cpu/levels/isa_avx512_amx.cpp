// The AMX levels' logic over emulated tiles on AVX-512, for the tests.
#include "kernels/cpu/simd/simd_avx512.h"

#include "kernels/cpu/levels/amx_table.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire {

const LevelAdditions kAvx512AmxEmulatedAdditions = make_avx512amx_additions<EmulatedTiles>();
const LevelAdditions kAmxEmulatedAvx512Additions = make_amx_additions<EmulatedTiles, EmulatedLeftTiles>();

}  // namespace quire
