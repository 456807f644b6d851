// EmulatedThread: one thread of a block in the emulator, with the operations that kernels call. One fibre.
// Invariant: all 32 lanes of a warp meet in each warp operation, and in the same one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/emulated/fibre.h"
#include "kernels/formats/half.h"

namespace quire::gpu {

class Emulator;
class EmulatedThread;

enum class Meeting : std::uint8_t { kSyncWarp, kShuffle, kMmaK32, kMmaK16, kMmaF16, kMmaBF16 };

// The meeting point of a warp's lanes.
struct EmulatedWarp {
  int number = 0;
  int num_arrived = 0;  // at a warp operation
  int num_ready = 0;
  EmulatedThread* lanes[32] = {};
  std::uint8_t order[32] = {};  // order of lanes between two meetings
  std::uint8_t place[32] = {};  // place of a lane in that order
};

class EmulatedThread {
 public:
  EmulatedThread(Emulator& emulator, EmulatedWarp& warp, int index, std::byte* stack, std::size_t stack_bytes);

  int index() const { return index_; }
  int lane() const { return index_ % 32; }
  int warp() const { return index_ / 32; }
  std::int64_t block_x() const;
  std::int64_t block_y() const;
  std::byte* shared() const;

  static constexpr bool moves_loads_up() { return false; }
  void sync_block();
  void sync_warp();
  template <class T>
  T shuffle_xor(T value, int lane_mask) {
    static_assert(sizeof(T) == sizeof(std::uint32_t));
    return std::bit_cast<T>(shuffle_word(std::bit_cast<std::uint32_t>(value), lane() ^ lane_mask));
  }

  void wait_for_kernels() {}  // kernels before have ended

  // Sixteen bytes from global to shared memory. They may land at any time until wait_copies<n>() leaves at most the
  // last n commits of this thread under way; other threads see them after a barrier behind that.
  void copy_async(std::byte* shared, const std::byte* from);
  void commit_copies() { ++num_commits_; }
  template <int kLeft>
  void wait_copies() {
    wait_for_commits(num_commits_ - kLeft);
  }

  // sum += A B of 16 x 32 unsigned and 32 x 8 signed bytes, in the fragments of mma.m16n8k32; then of 16 features.
  void mma_u8s8_k32(std::int32_t (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    operands_ = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, sum, nullptr};
    meet(Meeting::kMmaK32);
  }
  void mma_u8s8_k16(std::int32_t (&sum)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0) {
    operands_ = {{a0, a1}, {b0}, sum, nullptr};
    meet(Meeting::kMmaK16);
  }

  // sum += A B of 16 x 16 and 16 x 8 floats of 16 bits, in the fragments of mma.m16n8k16. The sum and the products,
  // which are exact, are added in f64 in the order of the depth and rounded to f32 once: an order of the emulator's
  // own.
  void mma_f16(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    operands_ = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, nullptr, sum};
    meet(Meeting::kMmaF16);
  }
  void mma_bf16(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    operands_ = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, nullptr, sum};
    meet(Meeting::kMmaBF16);
  }

  static std::uint32_t byte_permute(std::uint32_t x, std::uint32_t y, std::uint32_t selectors) {
    const std::uint64_t both = (static_cast<std::uint64_t>(y) << 32) | x;
    std::uint32_t out = 0;
    for (unsigned i = 0; i < 4; ++i)
      out |= static_cast<std::uint32_t>((both >> (8 * ((selectors >> (4 * i)) & 7u))) & 255u) << (8 * i);
    return out;
  }
  // The products of two signed numbers of 16 bits with the two low signed bytes, added.
  static std::int32_t dot_pairs(std::uint32_t pairs, std::uint32_t bytes) {
    return static_cast<std::int16_t>(pairs & 0xffffu) * static_cast<std::int8_t>(bytes & 255u) +
           static_cast<std::int16_t>(pairs >> 16) * static_cast<std::int8_t>(bytes >> 8 & 255u);
  }
  static float half_to_float(std::uint16_t half) { return f16_to_float(half); }
  static std::uint16_t float_to_half(float value) { return float_to_f16(value); }
  // Two floats, the first one low.
  static std::uint32_t floats_to_halves(float first, float second) {
    return float_to_f16(first) | static_cast<std::uint32_t>(float_to_f16(second)) << 16;
  }
  static std::uint32_t floats_to_bfloats(float first, float second) {
    return float_to_bf16(first) | static_cast<std::uint32_t>(float_to_bf16(second)) << 16;
  }

 private:
  friend class Emulator;
  enum class State : std::uint8_t { kReady, kAtWarp, kAtBarrier, kDone };
  struct Operands {
    std::uint32_t a[4] = {};
    std::uint32_t b[2] = {};
    std::int32_t* sum = nullptr;
    float* float_sum = nullptr;
  };
  struct Copy {
    std::byte* to;
    const std::byte* from;
    int commit;
  };

  void begin_block();
  void meet(Meeting meeting);
  void pause(State state);
  std::uint32_t shuffle_word(std::uint32_t value, int source);
  void wait_for_commits(int count);
  static void multiply(EmulatedWarp& warp, int depth);
  template <class Widen>
  static void multiply_halves(EmulatedWarp& warp, const Widen& widen);

  Emulator& emulator_;
  EmulatedWarp& warp_;
  int index_;
  Fibre fibre_;
  State state_ = State::kDone;
  Meeting meeting_ = Meeting::kSyncWarp;
  Operands operands_;
  std::uint32_t shuffled_[2] = {};  // values of two successive meetings: a lane may be one ahead of another
  int num_shuffles_ = 0;
  std::vector<Copy> copies_;
  int num_commits_ = 0;
  int num_block_barriers_ = 0;
  int num_warp_barriers_ = 0;
  int num_waits_ = 0;
};

}  // namespace quire::gpu
