// The AMX level: matrix products and attention on bf16 tiles, all else as on AVX-512.
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/amx_table.h"
#include "kernels/cpu/isa_levels.h"

namespace quire {

const KernelTable kAmxKernels = make_amx_table<HardwareTiles, HardwareLeftTiles>("amx");

}  // namespace quire
