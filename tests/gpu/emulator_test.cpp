// The emulator itself: collectives, barriers and asynchronous copies work as on a GPU, and errors in a kernel are
// found.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/emulated/emulator.h"
#include "tests/gpu/death.h"

namespace quire::test {
namespace {

using gpu::EmulatedKernel;
using gpu::EmulatedThread;
using gpu::Emulator;
using gpu::EmulatorOptions;
using gpu::Mutation;

struct Buffers {
  const std::uint32_t* in = nullptr;
  std::uint32_t* out = nullptr;
  std::uint64_t lanes = 0;  // mask of the lanes that diverge
};

using Body = void (*)(EmulatedThread&, const Buffers&);

template <Body kBody>
EmulatedKernel kernel_of(int threads, int shared_bytes) {
  EmulatedKernel kernel;
  kernel.name = "test kernel";
  kernel.threads = threads;
  kernel.shared_bytes = shared_bytes;
  kernel.args_bytes = sizeof(Buffers);
  kernel.run = [](EmulatedThread& t, const void* args) { kBody(t, *static_cast<const Buffers*>(args)); };
  return kernel;
}

// Each thread passes its number to the thread 33 further on, round after round.
void pass_round(EmulatedThread& t, const Buffers& buffers) {
  auto* shared = reinterpret_cast<std::uint32_t*>(t.shared());
  std::uint32_t value = static_cast<std::uint32_t>(t.index());
  for (int round = 0; round < 3; ++round) {
    shared[t.index()] = value;
    t.sync_block();
    value = shared[(t.index() + 33) % 128];
    t.sync_block();
  }
  buffers.out[t.index()] = value;
}

// Does the same in a warp.
void pass_in_warp(EmulatedThread& t, const Buffers& buffers) {
  auto* shared = reinterpret_cast<std::uint32_t*>(t.shared());
  shared[t.lane()] = static_cast<std::uint32_t>(t.lane());
  t.sync_warp();
  buffers.out[t.lane()] = shared[(t.lane() + 5) % 32];
}

void sum_of_warp(EmulatedThread& t, const Buffers& buffers) {
  std::uint32_t value = buffers.in[t.index()];
  for (int distance = 16; distance > 0; distance /= 2)
    value += t.shuffle_xor(value, distance);
  buffers.out[t.index()] = value;
}

// Two stages: the next one is filled while the other is read.
void copy_in_stages(EmulatedThread& t, const Buffers& buffers) {
  const auto fetch = [&](int turn) {
    if (turn < 4) {
      t.copy_async(t.shared() + 512 * (turn % 2) + 16 * t.lane(),
                   reinterpret_cast<const std::byte*>(buffers.in) + 512 * turn + 16 * t.lane());
    }
    t.commit_copies();
  };
  fetch(0);
  for (int turn = 0; turn < 4; ++turn) {
    t.wait_copies<0>();
    t.sync_warp();
    fetch(turn + 1);
    const auto* stage = reinterpret_cast<const std::uint32_t*>(t.shared() + 512 * (turn % 2));
    for (int i = 0; i < 4; ++i)
      buffers.out[128 * turn + 4 * ((t.lane() + 1) % 32) + i] = stage[4 * ((t.lane() + 1) % 32) + i];
  }
}

void miss_a_shuffle(EmulatedThread& t, const Buffers& buffers) {
  if (((buffers.lanes >> t.lane()) & 1) == 0) buffers.out[t.lane()] = t.shuffle_xor(std::uint32_t{1}, 1);
}

void meet_elsewhere(EmulatedThread& t, const Buffers& buffers) {
  if (((buffers.lanes >> t.lane()) & 1) == 0) {
    buffers.out[t.lane()] = t.shuffle_xor(std::uint32_t{1}, 1);
  } else {
    t.sync_warp();
  }
}

void miss_a_barrier(EmulatedThread& t, const Buffers&) {
  if (t.warp() != 1) t.sync_block();
}

void write_behind_shared(EmulatedThread& t, const Buffers&) {
  if (t.index() == 0) t.shared()[1024] = std::byte{1};
}

void read_shared_first(EmulatedThread& t, const Buffers& buffers) {
  buffers.out[t.index()] = reinterpret_cast<const std::uint32_t*>(t.shared())[t.index()];
}

void copy_unaligned(EmulatedThread& t, const Buffers& buffers) {
  t.copy_async(t.shared() + 8, reinterpret_cast<const std::byte*>(buffers.in));
}

std::vector<std::uint32_t> numbers(std::size_t count) {
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), 1000u);
  return out;
}

// Runs a kernel on the numbers 1000, 1001, ...
std::vector<std::uint32_t> run(const EmulatedKernel& kernel, const EmulatorOptions& options) {
  alignas(16) static const std::vector<std::uint32_t> kNumbers = numbers(512);
  std::vector<std::uint32_t> out(512, 7);
  const Buffers buffers{.in = kNumbers.data(), .out = out.data()};
  Emulator(options).run_block(kernel, &buffers, 0, 0);
  return out;
}

constexpr std::uint64_t kSeeds = 12;

// Returns whether some seed shows that the fault changes the result.
bool is_found(const EmulatedKernel& kernel, Mutation mutation) {
  const std::vector<std::uint32_t> right = run(kernel, {});
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    if (run(kernel, {seed, mutation}) != right) return true;
  }
  return false;
}

std::string death_message(const EmulatedKernel& kernel, std::uint64_t lanes, int expected_signal) {
  const Death death = death_of([&] {
    std::vector<std::uint32_t> out(512);
    const std::vector<std::uint32_t> in = numbers(512);
    const Buffers buffers{.in = in.data(), .out = out.data(), .lanes = lanes};
    Emulator({}).run_block(kernel, &buffers, 3, 4);
  });
  CHECK(death.signal == expected_signal);
  return death.message;
}

}  // namespace

TEST_CASE("emulated kernels give the same result in every order of threads") {
  const EmulatedKernel kernels[] = {kernel_of<pass_round>(128, 512), kernel_of<pass_in_warp>(32, 128),
                                    kernel_of<sum_of_warp>(256, 0), kernel_of<copy_in_stages>(32, 1024)};
  for (const EmulatedKernel& kernel : kernels) {
    const std::vector<std::uint32_t> right = run(kernel, {});
    for (std::uint64_t seed = 1; seed < kSeeds; ++seed)
      CHECK(run(kernel, {.seed = seed}) == right);
  }
  const std::vector<std::uint32_t> passed = run(kernels[0], {});
  const std::vector<std::uint32_t> sums = run(kernels[2], {});
  const std::vector<std::uint32_t> copied = run(kernels[3], {});
  for (std::uint32_t i = 0; i < 128; ++i)
    CHECK(passed[i] == (i + 99) % 128);
  for (std::uint32_t i = 0; i < 256; ++i)
    CHECK(sums[i] == 32 * (1000 + i / 32 * 32) + 31 * 16);
  CHECK(copied == numbers(512));
}

TEST_CASE("the emulator finds each barrier, warp barrier and wait that is left out") {
  for (int number = 0; number < 6; ++number) {
    INFO("barrier " << number);
    // The last barrier separates no accesses: the kernel ends after it.
    const Mutation skipped{Mutation::Kind::kSkipBlockBarrier, number};
    CHECK(is_found(kernel_of<pass_round>(128, 512), skipped) == (number < 5));
  }
  CHECK(is_found(kernel_of<pass_in_warp>(32, 128), {Mutation::Kind::kSkipWarpBarrier, 0}));
  for (int number = 0; number < 4; ++number) {
    INFO("stage " << number);
    CHECK(is_found(kernel_of<copy_in_stages>(32, 1024), {Mutation::Kind::kSkipCopyWait, number}));
    CHECK(is_found(kernel_of<copy_in_stages>(32, 1024), {Mutation::Kind::kSkipWarpBarrier, number}));
  }
}

TEST_CASE("shared memory that a kernel reads before it wrote it is poisoned") {
  const std::vector<std::uint32_t> read = run(kernel_of<read_shared_first>(64, 256), {});
  CHECK(std::ranges::all_of(read.begin(), read.begin() + 64, [](std::uint32_t x) { return x == 0xffffffffu; }));
}

TEST_CASE("the emulator ends the program with the names of lanes that miss a collective") {
  const std::string missed = death_message(kernel_of<miss_a_shuffle>(32, 0), 1u << 7, SIGABRT);
  CHECK_THAT(missed, Catch::Contains("test kernel, block (3, 4) has lanes that miss a warp operation"));
  CHECK_THAT(missed, Catch::Contains("lane 7: done") && Catch::Contains("lane 8: shuffle"));
  const std::string mixed = death_message(kernel_of<meet_elsewhere>(32, 0), 1u << 31, SIGABRT);
  CHECK_THAT(mixed, Catch::Contains("in different warp operations"));
  CHECK_THAT(mixed, Catch::Contains("lane 31: sync_warp") && Catch::Contains("lane 0: shuffle"));
  const std::string barrier = death_message(kernel_of<miss_a_barrier>(96, 0), 0, SIGABRT);
  CHECK_THAT(barrier, Catch::Contains("miss a barrier of the block") && Catch::Contains("warp 1 lane 0: done"));
}

TEST_CASE("the emulator ends the program where memory is used wrongly") {
  death_message(kernel_of<write_behind_shared>(32, 1024), 0, SIGSEGV);
  CHECK_THAT(death_message(kernel_of<copy_unaligned>(32, 64), 0, SIGABRT), Catch::Contains("not aligned"));
}

}  // namespace quire::test
