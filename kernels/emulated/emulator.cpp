#include "kernels/emulated/emulator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "kernels/check.h"
#include "kernels/formats/half.h"

namespace quire::gpu {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 << 10;
#else
constexpr std::size_t kStackBytes = 32 << 10;
#endif
// Odds, by the seed, that a warp yields to another after meeting: one in so many.
constexpr unsigned kMakesWay = 8;

constexpr std::byte kPoison{0xff};  // NaN as a float, -1 as an integer

}  // namespace

// The stacks of a warp's lanes, each behind a page that faults.
struct Emulator::Stack {
  GuardedMemory lanes[32];
};

Emulator::Emulator(const EmulatorOptions& options) : options_(options), random_(options.seed) {}

Emulator::~Emulator() = default;

void Emulator::thread_main(void* thread) {
  auto& self = *static_cast<EmulatedThread*>(thread);
  self.emulator_.run_thread(self);
}

void Emulator::run_thread(EmulatedThread& thread) {
  for (;;) {
    kernel_->run(thread, args_);
    ++num_done_;
    thread.pause(EmulatedThread::State::kDone);
  }
}

void Emulator::reserve(const EmulatedKernel& kernel) {
  QUIRE_CHECK(kernel.threads % 32 == 0, "threads of a kernel that are no whole warps");
  const auto wanted = static_cast<std::size_t>(kernel.threads);
  while (threads_.size() < wanted) {
    if (threads_.size() % 32 == 0) {
      warps_.push_back(std::make_unique<EmulatedWarp>());
      warps_.back()->number = static_cast<int>(warps_.size()) - 1;
      stacks_.push_back(std::make_unique<Stack>());
    }
    const std::size_t lane = threads_.size() % 32;
    GuardedMemory& stack = stacks_.back()->lanes[lane];
    stack = GuardedMemory(kStackBytes);
    threads_.push_back(std::make_unique<EmulatedThread>(*this, *warps_.back(), static_cast<int>(threads_.size()),
                                                        stack.data(), stack.size()));
    warps_.back()->lanes[lane] = threads_.back().get();
  }
  const auto bytes = static_cast<std::size_t>(kernel.shared_bytes);
  if (shared_memory_.size() < bytes) shared_memory_ = GuardedMemory(bytes);
  // The end, not the begin, is that of the memory: what lies behind it faults.
  shared_ = shared_memory_.data() + (shared_memory_.size() - bytes) / 16 * 16;
}

void Emulator::start_block() {
  std::fill_n(shared_, kernel_->shared_bytes, kPoison);
  num_threads_ = kernel_->threads;
  num_done_ = 0;
  num_at_barrier_ = 0;
  for (int i = 0; i < num_threads_; ++i)
    threads_[static_cast<std::size_t>(i)]->begin_block();
  for (int w = 0; w < num_threads_ / 32; ++w) {
    EmulatedWarp& warp = *warps_[static_cast<std::size_t>(w)];
    std::iota(warp.order, warp.order + 32, std::uint8_t{0});
    if (options_.seed != 0) std::shuffle(warp.order, warp.order + 32, random_);
    for (std::uint8_t i = 0; i < 32; ++i)
      warp.place[warp.order[i]] = i;
    warp.num_arrived = 0;
    warp.num_ready = 32;
  }
}

EmulatedWarp* Emulator::choose_warp() {
  runnable_.clear();
  for (int w = 0; w < num_threads_ / 32; ++w) {
    EmulatedWarp* warp = warps_[static_cast<std::size_t>(w)].get();
    if (warp->num_ready > 0) runnable_.push_back(warp);
  }
  if (runnable_.empty()) return nullptr;
  return runnable_[options_.seed == 0 ? 0 : random_() % runnable_.size()];
}

void Emulator::release_barrier() {
  if (num_at_barrier_ != num_threads_) fail("has threads that miss a barrier of the block", nullptr);
  num_at_barrier_ = 0;
  for (int i = 0; i < num_threads_; ++i)
    threads_[static_cast<std::size_t>(i)]->state_ = EmulatedThread::State::kReady;
  for (int w = 0; w < num_threads_ / 32; ++w)
    warps_[static_cast<std::size_t>(w)]->num_ready = 32;
}

void Emulator::run_block(const EmulatedKernel& kernel, const void* args, std::int64_t block_x, std::int64_t block_y) {
  kernel_ = &kernel;
  args_ = args;
  block_x_ = block_x;
  block_y_ = block_y;
  reserve(kernel);
  start_block();
  while (num_done_ < num_threads_) {
    EmulatedWarp* warp = choose_warp();
    if (warp == nullptr) {
      release_barrier();
      continue;
    }
    for (const std::uint8_t lane : warp->order) {
      if (warp->lanes[lane]->state_ != EmulatedThread::State::kReady) continue;
      scheduler_.switch_to(warp->lanes[lane]->fibre_);
      break;
    }
  }
}

void Emulator::fail(const char* what, const EmulatedWarp* warp) const {
  static constexpr const char* kStates[] = {"ready", "at a warp operation", "at a barrier of the block", "done"};
  static constexpr const char* kMeetings[] = {"sync_warp", "shuffle", "mma k32", "mma k16", "mma f16", "mma bf16"};
  std::fprintf(stderr, "emulated GPU: kernel %s, block (%lld, %lld) %s\n", kernel_->name.c_str(),
               static_cast<long long>(block_x_), static_cast<long long>(block_y_), what);
  for (int i = 0; i < num_threads_; ++i) {
    const EmulatedThread& thread = *threads_[static_cast<std::size_t>(i)];
    if (warp != nullptr && &thread.warp_ != warp) continue;
    const bool meets = thread.state_ == EmulatedThread::State::kAtWarp;
    std::fprintf(stderr, "  warp %d lane %d: %s\n", thread.warp(), thread.lane(),
                 meets ? kMeetings[static_cast<std::size_t>(thread.meeting_)]
                       : kStates[static_cast<std::size_t>(thread.state_)]);
  }
  std::abort();
}

EmulatedThread::EmulatedThread(Emulator& emulator, EmulatedWarp& warp, int index, std::byte* stack,
                               std::size_t stack_bytes)
    : emulator_(emulator), warp_(warp), index_(index), fibre_(stack, stack_bytes, &Emulator::thread_main, this) {}

std::int64_t EmulatedThread::block_x() const {
  return emulator_.block_x_;
}
std::int64_t EmulatedThread::block_y() const {
  return emulator_.block_y_;
}
std::byte* EmulatedThread::shared() const {
  return emulator_.shared_;
}

void EmulatedThread::begin_block() {
  state_ = State::kReady;
  copies_.clear();
  num_commits_ = 0;
  num_shuffles_ = 0;
  num_block_barriers_ = 0;
  num_warp_barriers_ = 0;
  num_waits_ = 0;
}

// Switches to the warp's next lane that can run, or to the scheduler.
void EmulatedThread::pause(State state) {
  state_ = state;
  --warp_.num_ready;
  const int here = warp_.place[lane()];
  for (int i = 1; i < 32 && warp_.num_ready > 0; ++i) {
    EmulatedThread& next = *warp_.lanes[warp_.order[(here + i) % 32]];
    if (next.state_ == State::kReady) return fibre_.switch_to(next.fibre_);
  }
  if (warp_.num_arrived > 0) emulator_.fail("has lanes that miss a warp operation", &warp_);
  fibre_.switch_to(emulator_.scheduler_);
}

void EmulatedThread::meet(Meeting meeting) {
  meeting_ = meeting;
  if (++warp_.num_arrived < 32) return pause(State::kAtWarp);
  state_ = State::kAtWarp;
  for (const EmulatedThread* lane : warp_.lanes) {
    if (lane->meeting_ != meeting) emulator_.fail("has lanes in different warp operations", &warp_);
  }
  if (meeting == Meeting::kMmaK32) multiply(warp_, 32);
  if (meeting == Meeting::kMmaK16) multiply(warp_, 16);
  if (meeting == Meeting::kMmaF16) multiply_halves(warp_, [](std::uint16_t half) { return f16_to_float(half); });
  if (meeting == Meeting::kMmaBF16) multiply_halves(warp_, [](std::uint16_t half) { return bf16_to_float(half); });
  warp_.num_arrived = 0;
  warp_.num_ready = 32;
  for (EmulatedThread* lane : warp_.lanes)
    lane->state_ = State::kReady;
  if (emulator_.options_.seed != 0 && emulator_.random_() % kMakesWay == 0) fibre_.switch_to(emulator_.scheduler_);
}

void EmulatedThread::sync_warp() {
  const Mutation& mutation = emulator_.options_.mutation;
  if (mutation.kind == Mutation::Kind::kSkipWarpBarrier && mutation.number == num_warp_barriers_++) return;
  meet(Meeting::kSyncWarp);
}

void EmulatedThread::sync_block() {
  const Mutation& mutation = emulator_.options_.mutation;
  if (mutation.kind == Mutation::Kind::kSkipBlockBarrier && mutation.number == num_block_barriers_++) return;
  ++emulator_.num_at_barrier_;
  pause(State::kAtBarrier);
}

std::uint32_t EmulatedThread::shuffle_word(std::uint32_t value, int source) {
  const int buffer = num_shuffles_++ % 2;
  shuffled_[buffer] = value;
  meet(Meeting::kShuffle);
  return warp_.lanes[source]->shuffled_[buffer];
}

void EmulatedThread::copy_async(std::byte* shared, const std::byte* from) {
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(shared) % 16 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  if (!aligned) emulator_.fail("copies asynchronously between addresses that are not aligned to 16 bytes", &warp_);
  if (shared < emulator_.shared_ || shared + 16 > emulator_.shared_ + emulator_.kernel_->shared_bytes)
    emulator_.fail("copies asynchronously to what is not shared memory", &warp_);
  if (emulator_.options_.seed % 2 != 0 && emulator_.random_() % 2 == 0) {
    std::copy_n(from, 16, shared);
  } else {
    copies_.push_back({shared, from, num_commits_});
  }
}

void EmulatedThread::wait_for_commits(int count) {
  const Mutation& mutation = emulator_.options_.mutation;
  if (mutation.kind == Mutation::Kind::kSkipCopyWait && mutation.number == num_waits_++) return;
  std::size_t landed = 0;
  for (; landed < copies_.size() && copies_[landed].commit < count; ++landed)
    std::copy_n(copies_[landed].from, 16, copies_[landed].to);
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(landed));
}

void EmulatedThread::multiply(EmulatedWarp& warp, int depth) {
  alignas(16) std::uint8_t a[16][32];
  alignas(16) std::int8_t b[8][32];
  for (int lane = 0; lane < 32; ++lane) {
    const Operands& from = warp.lanes[lane]->operands_;
    const int group = lane / 4;
    const int at = lane % 4 * 4;
    for (int word = 0; word < depth / 8; ++word)
      __builtin_memcpy(&a[group + 8 * (word % 2)][at + 16 * (word / 2)], &from.a[word], 4);
    for (int word = 0; word < depth / 16; ++word)
      __builtin_memcpy(&b[group][at + 16 * word], &from.b[word], 4);
  }
  for (int lane = 0; lane < 32; ++lane) {
    std::int32_t* sum = warp.lanes[lane]->operands_.sum;
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t* left = a[lane / 4 + 8 * (i / 2)];
      const std::int8_t* right = b[lane % 4 * 2 + i % 2];
      std::int32_t total = 0;
      if (depth == 32) {
        for (int k = 0; k < 32; ++k)
          total += left[k] * right[k];
      } else {
        for (int k = 0; k < 16; ++k)
          total += left[k] * right[k];
      }
      sum[i] += total;
    }
  }
}

// Rows of eight: the columns of B, which the compiler adds side by side.
template <class Widen>
void EmulatedThread::multiply_halves(EmulatedWarp& warp, const Widen& widen) {
  double a[16][16];
  double b[16][8];
  double sums[16][8];
  const auto half_of = [&](std::uint32_t word, int i) {
    return static_cast<double>(widen(static_cast<std::uint16_t>(word >> (16 * i))));
  };
  for (int lane = 0; lane < 32; ++lane) {
    const Operands& from = warp.lanes[lane]->operands_;
    const int group = lane / 4;
    const int at = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      for (int word = 0; word < 4; ++word)
        a[group + 8 * (word % 2)][at + 8 * (word / 2) + i] = half_of(from.a[word], i);
      for (int word = 0; word < 2; ++word)
        b[at + 8 * word + i][group] = half_of(from.b[word], i);
      for (int half = 0; half < 2; ++half)
        sums[group + 8 * half][at + i] = static_cast<double>(from.float_sum[2 * half + i]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int col = 0; col < 8; ++col)
        sums[row][col] += a[row][k] * b[k][col];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* out = warp.lanes[lane]->operands_.float_sum;
    for (int i = 0; i < 4; ++i)
      out[i] = static_cast<float>(sums[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2]);
  }
}

}  // namespace quire::gpu
