// EmulatedDevice: a Device whose kernels run in the emulator. Enqueued work runs when a caller waits or polls, in an
// order of the streams drawn by the seed: as late as a device may, and with copies that read and write host memory only
// then. Threads as Device says: one at a time is inside.
// Invariants: memory begins poisoned and ends at a page that faults; freed memory faults and is not handed out again.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/emulated/emulator.h"
#include "kernels/gpu/device.h"

namespace quire::gpu {

struct EmulatedDeviceOptions {
  std::uint64_t seed = 0;  // of the emulator and of the streams; 0: every stream in turn, the compute stream first
  bool immediate = false;  // what is enqueued runs at once
  std::size_t memory = std::size_t{8} << 30;
  Mutation mutation = {};
  bool ignore_waits = false;  // planted fault: streams do not wait for events
  // Injected: the n-th of its kind fails, counted from 0; below zero: none.
  int failing_allocation = -1;
  int failing_copy = -1;
  int failing_launch = -1;
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options);

  std::string name() const override { return "emulated GPU"; }
  std::size_t total_memory() const override { return options_.memory; }
  std::size_t free_memory() const override;
  std::byte* allocate(std::size_t bytes, std::string_view what) override;
  void free(std::byte* memory) override;
  void free_behind(std::byte* memory) override;
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) override;
  std::byte* allocate_host(std::size_t bytes) override;
  void free_host(std::byte* memory) override;
  void copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void fill(std::byte* to, std::byte value, std::size_t bytes, Stream stream) override;
  const Kernel& kernel(std::string_view name) const override;
  void launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes, Stream stream) override;
  Event create_event() override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool done(Event event) override;
  void synchronize(Event event) override;
  void synchronize() override;

  // The kernels by name, for tests that go through all of them.
  const std::vector<EmulatedKernel>& kernels() const { return kernels_; }

 private:
  struct Operation {
    enum class Kind : std::uint8_t { kCopyIn, kCopyOut, kFill, kLaunch, kRecord, kWait, kFree };
    Kind kind = Kind::kCopyIn;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    std::byte value{};
    const EmulatedKernel* kernel = nullptr;
    Grid grid = {};
    std::vector<std::byte> args = {};
    Event event = 0;
    std::int64_t target = 0;  // of a wait: completed records of the event
  };
  struct EventState {
    std::int64_t recorded = 0;
    std::int64_t completed = 0;
  };

  void enqueue(Operation operation, Stream stream);
  bool can_run(Stream stream) const;
  bool run_one();  // false where nothing is enqueued
  void run(const Operation& operation);
  void run_copy(const Operation& operation, const std::byte* on_device);
  void run_grid(const Operation& operation);
  void check_device_range(const std::byte* from, std::size_t bytes) const;
  bool fails(int& countdown, const char* what);
  void throw_error() const;

  mutable std::recursive_mutex mutex_;
  EmulatedDeviceOptions options_;
  Emulator emulator_;
  std::mt19937_64 random_;
  std::vector<EmulatedKernel> kernels_;
  std::map<std::byte*, GuardedMemory> memory_;
  std::map<std::byte*, GuardedMemory> host_memory_;
  std::vector<GuardedMemory> freed_;
  std::size_t allocated_ = 0;
  std::array<std::deque<Operation>, kNumStreams> streams_;
  std::vector<EventState> events_;
  std::string error_;
};

}  // namespace quire::gpu
