// The AMX level's logic over emulated tiles on any machine, for the tests.
#include "kernels/cpu/simd_scalar.h"

#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/isa_levels.h"

namespace quire {

const KernelTable kAmxEmulatedKernels = make_amx_table<EmulatedTiles, EmulatedLeftTiles>("amx");

}  // namespace quire
