// CudaThread: one thread of a block on a CUDA device, with the operations that kernels call (EmulatedThread has the
// same). The only file with PTX. Any architecture from sm_80 on.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

// Architecture of the GPU that is compiled for; 0: the host's pass.
#if defined(__CUDA_ARCH__)
inline constexpr int kArchitecture = __CUDA_ARCH__;
#else
inline constexpr int kArchitecture = 0;
#endif

class CudaThread {
 public:
  QUIRE_DEVICE explicit CudaThread(std::byte* shared) : shared_(shared) {}

  QUIRE_DEVICE int index() const { return static_cast<int>(threadIdx.x); }
  QUIRE_DEVICE int lane() const { return index() % kWarpLanes; }
  QUIRE_DEVICE int warp() const { return index() / kWarpLanes; }
  QUIRE_DEVICE std::int64_t block_x() const { return blockIdx.x; }
  QUIRE_DEVICE std::int64_t block_y() const { return blockIdx.y; }
  QUIRE_DEVICE std::byte* shared() const { return shared_; }

  // Returns whether the assembler moves all loads of a loop to its front even without registers for them: those of
  // sm_90 and sm_100 stop in time. A branch at each load prevents that, and costs time.
  static QUIRE_DEVICE constexpr bool moves_loads_up() { return kArchitecture < 900 || kArchitecture >= 1200; }

  QUIRE_DEVICE void sync_block() { __syncthreads(); }
  QUIRE_DEVICE void sync_warp() { __syncwarp(); }
  template <class T>
  QUIRE_DEVICE T shuffle_xor(T value, int lane_mask) {
    return __shfl_xor_sync(0xffffffffu, value, lane_mask);
  }

  // Waits for the results of the kernels before. A kernel may begin before they end (from sm_90 on), to
  // read what none of them writes. Every thread comes here, or all kernels behind it could begin too early.
  QUIRE_DEVICE void wait_for_kernels() {
    if constexpr (kArchitecture >= 900) asm volatile("griddepcontrol.wait;" ::: "memory");
  }
  // The next kernel may begin once every block has come here or ended.
  QUIRE_DEVICE void let_next_begin() {
    if constexpr (kArchitecture >= 900) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }

  QUIRE_DEVICE void copy_async(std::byte* shared, const std::byte* from) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  }
  QUIRE_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kLeft>
  QUIRE_DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  }

  QUIRE_DEVICE void mma_u8s8_k32(std::int32_t (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  QUIRE_DEVICE void mma_u8s8_k16(std::int32_t (&sum)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a0), "r"(a1), "r"(b0));
  }

  QUIRE_DEVICE void mma_f16(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  QUIRE_DEVICE void mma_bf16(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  static QUIRE_DEVICE std::uint32_t byte_permute(std::uint32_t x, std::uint32_t y, std::uint32_t selectors) {
    return __byte_perm(x, y, selectors);
  }
  static QUIRE_DEVICE std::int32_t dot_pairs(std::uint32_t pairs, std::uint32_t bytes) {
    return __dp2a_lo(static_cast<int>(pairs), static_cast<int>(bytes), 0);
  }
  static QUIRE_DEVICE std::uint16_t float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
  // Two floats, the first one low.
  static QUIRE_DEVICE std::uint32_t floats_to_halves(float first, float second) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
  }
  static QUIRE_DEVICE std::uint32_t floats_to_bfloats(float first, float second) {
    std::uint32_t halves;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
  }
  static QUIRE_DEVICE float half_to_float(std::uint16_t half) { return __half2float(__ushort_as_half(half)); }

 private:
  std::byte* shared_;
};

}  // namespace quire::gpu
