// The logic of all AMX kernels over emulated tiles on any machine, for the tests.
#include "kernels/cpu/simd/simd_scalar.h"

#include "kernels/cpu/levels/amx_table.h"
#include "kernels/cpu/levels/isa_levels.h"

namespace quire {

const LevelAdditions kAmxEmulatedAdditions = make_amx_additions<EmulatedTiles, EmulatedLeftTiles>();

}  // namespace quire
