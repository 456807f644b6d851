// Emulator: runs one block of a kernel on the CPU, a fibre per thread. Warp and block operations are rendezvous;
// between them threads run in an order drawn by the seed. Shared memory begins poisoned and ends at a page that faults.
// Asynchronous copies land when they are waited for, or by the seed at once. Lanes that miss a collective, and threads
// that miss a barrier, end the program with their names. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/emulated/emulated_thread.h"
#include "kernels/emulated/fibre.h"
#include "kernels/emulated/guarded_memory.h"
#include "kernels/gpu/device/device.h"

namespace quire::gpu {

// A planted fault: every thread skips its `number`-th operation of a kind, counted from 0.
struct Mutation {
  enum class Kind : std::uint8_t { kNone, kSkipBlockBarrier, kSkipWarpBarrier, kSkipCopyWait };
  Kind kind = Kind::kNone;
  int number = 0;
};

struct EmulatorOptions {
  std::uint64_t seed = 0;  // 0: lanes and warps in their order, copies land late
  Mutation mutation = {};
};

struct EmulatedKernel : Kernel {
  void (*run)(EmulatedThread& thread, const void* args) = nullptr;
};

class Emulator {
 public:
  explicit Emulator(const EmulatorOptions& options);
  ~Emulator();

  void run_block(const EmulatedKernel& kernel, const void* args, std::int64_t block_x, std::int64_t block_y);

 private:
  friend class EmulatedThread;
  struct Stack;

  void reserve(const EmulatedKernel& kernel);
  void start_block();
  EmulatedWarp* choose_warp();
  void release_barrier();
  [[noreturn]] void fail(const char* what, const EmulatedWarp* warp) const;
  void run_thread(EmulatedThread& thread);
  static void thread_main(void* thread);

  EmulatorOptions options_;
  std::mt19937_64 random_;
  const EmulatedKernel* kernel_ = nullptr;
  const void* args_ = nullptr;
  std::int64_t block_x_ = 0;
  std::int64_t block_y_ = 0;
  std::byte* shared_ = nullptr;
  GuardedMemory shared_memory_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  Fibre scheduler_;
  std::vector<std::unique_ptr<EmulatedThread>> threads_;
  std::vector<std::unique_ptr<EmulatedWarp>> warps_;
  std::vector<EmulatedWarp*> runnable_;
  int num_threads_ = 0;  // threads of a block of this kernel
  int num_done_ = 0;
  int num_at_barrier_ = 0;
};

}  // namespace quire::gpu
