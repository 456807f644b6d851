// EmulatedDevice: a Device whose kernels run in the emulator. Enqueued work runs when a caller waits or polls, in an
// order of the streams drawn by the seed: as late as a device may, and with copies that read and write host memory only
// then. Devices of one EmulatedMachine are peers: a caller that waits for one runs the others' work too, one operation
// at a time, in an order of all their streams drawn by the seed. Threads as Device says, each of a machine's devices by
// its own: one at a time is inside the machine.
// Invariants: memory begins poisoned and ends at a page that faults; freed memory faults and is not handed out again.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/emulated/emulator.h"
#include "kernels/gpu/device/device.h"

namespace quire::gpu {

class EmulatedDevice;

// State shared by peer devices.
struct EmulatedMachine {
  std::recursive_mutex mutex;  // guards the state of all devices
  std::vector<EmulatedDevice*> devices;
};

struct EmulatedDeviceOptions {
  std::uint64_t seed = 0;  // order of lanes and streams; 0: every stream in turn, the compute stream first
  bool immediate = false;  // enqueued work runs at once
  std::size_t memory = std::size_t{8} << 30;
  Mutation mutation = {};
  bool ignore_waits = false;  // planted fault: streams do not wait for events, peers' too
  int ignored_wait = -1;      // planted fault: the n-th wait of the host for an event, counted from 0, returns at once
  bool ignore_updates = false;  // planted fault: a graph keeps the arguments that it was made with
  // Injected: the n-th of its kind fails, counted from 0; below zero: none.
  int failing_allocation = -1;
  int failing_copy = -1;
  int failing_launch = -1;
  std::shared_ptr<EmulatedMachine> machine = nullptr;  // null: the device is alone
  std::string label = "the GPU";                       // in errors
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options);
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;
  ~EmulatedDevice() override;

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
  Graph create_graph(std::span<const Launch> launches) override;
  void update_graph(Graph graph, std::size_t index, const Launch& launch) override;
  void launch_graph(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) override;
  Event create_event() override;
  Event create_timed_event() override { return create_event(); }
  double seconds_between(Event first, Event second) override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool done(Event event) override;
  void synchronize(Event event) override;
  void synchronize() override;
  void meet(const Device& peer) override;
  void wait_for(Stream stream, const Device& peer, Event event) override;
  void copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;

  std::int64_t num_copies_in() const { return num_copies_in_; }  // enqueued on the compute stream
  std::int64_t num_graph_launches() const { return num_graph_launches_; }
  bool is_idle() const;  // no work is left
  // The kernels by name, for tests that go through all of them.
  const std::vector<EmulatedKernel>& kernels() const { return kernels_; }

 private:
  struct Operation {
    enum class Kind : std::uint8_t { kCopyIn, kCopyOut, kCopyPeer, kFill, kLaunch, kRecord, kWait, kFree };
    Kind kind = Kind::kCopyIn;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    std::byte value{};
    const EmulatedKernel* kernel = nullptr;
    Grid grid = {};
    std::vector<std::byte> args = {};
    Event event = 0;
    std::int64_t target = 0;               // a wait's number of completed records of the event
    const EmulatedDevice* peer = nullptr;  // owner of the event or memory; null: this device
  };
  struct EventState {
    std::int64_t recorded = 0;
    std::int64_t completed = 0;
    std::chrono::steady_clock::time_point at{};  // the last one
  };

  // A stream of a device, whose next operation can run.
  struct Runnable {
    EmulatedDevice* device;
    Stream stream;
  };

  std::lock_guard<std::recursive_mutex> lock() const { return std::lock_guard<std::recursive_mutex>(machine_->mutex); }
  static Operation checked(const Launch& launch);
  void enqueue(Operation operation, Stream stream);
  bool can_run(Stream stream) const;
  void add_runnable(std::vector<Runnable>& out);
  bool run_one();  // runs an operation of any device; false if this one has none
  void run_next(Stream stream);
  void run(const Operation& operation);
  static void complete(EventState& event);
  void run_copy(const Operation& operation);
  void run_grid(const Operation& operation);
  void check_device_range(const std::byte* from, std::size_t bytes) const;
  bool fails(int& countdown, const char* where);
  void throw_error() const;

  EmulatedDeviceOptions options_;
  const std::shared_ptr<EmulatedMachine> machine_;
  Emulator emulator_;
  std::mt19937_64 random_;
  std::vector<EmulatedKernel> kernels_;
  std::map<std::byte*, GuardedMemory> memory_;
  std::map<std::byte*, GuardedMemory> host_memory_;
  std::vector<GuardedMemory> freed_;
  std::size_t allocated_ = 0;
  std::array<std::deque<Operation>, kNumStreams> streams_;
  std::vector<EventState> events_;
  std::map<Graph, std::vector<Operation>> graphs_;
  Graph last_graph_ = 0;
  std::int64_t num_copies_in_ = 0;
  std::int64_t num_graph_launches_ = 0;
  std::vector<Runnable> runnable_;
  std::string error_;
};

}  // namespace quire::gpu
