#include "kernels/emulated/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/check.h"
#include "kernels/emulated/emulated_kernels.h"

namespace quire::gpu {
namespace {

constexpr std::byte kUnwritten{0xff};

std::size_t index_of(Stream stream) {
  return static_cast<std::size_t>(stream);
}

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatedDeviceOptions& options)
    : options_(options), emulator_({options.seed, options.mutation}), random_(options.seed) {
  add_row_kernels(kernels_);
  add_attention_kernels(kernels_);
  add_attention_tile_kernels(kernels_);
  add_linear_skinny_kernels(kernels_);
  add_linear_wide_kernels(kernels_);
  add_linear_half_kernels(kernels_);
}

std::byte* EmulatedDevice::allocate(std::size_t bytes, std::string_view what) {
  const bool injected = options_.failing_allocation >= 0 && options_.failing_allocation-- == 0;
  if (injected || bytes > free_memory())
    throw DeviceError("the GPU has no " + std::to_string(bytes) + " bytes for " + std::string(what));
  GuardedMemory memory(bytes);
  memory.fill(kUnwritten);
  std::byte* const data = memory.data();
  allocated_ += bytes;
  memory_.emplace(data, std::move(memory));
  return data;
}

void EmulatedDevice::free(std::byte* memory) {
  if (memory == nullptr) return;
  const auto found = memory_.find(memory);
  QUIRE_CHECK(found != memory_.end(), "freed device memory that was not allocated");
  allocated_ -= found->second.size();
  found->second.forbid();
  freed_.push_back(std::move(found->second));
  memory_.erase(found);
}

std::byte* EmulatedDevice::allocate_host(std::size_t bytes) {
  GuardedMemory memory(bytes);
  std::byte* const data = memory.data();
  host_memory_.emplace(data, std::move(memory));
  return data;
}

void EmulatedDevice::free_host(std::byte* memory) {
  if (memory == nullptr) return;
  const auto found = host_memory_.find(memory);
  QUIRE_CHECK(found != host_memory_.end(), "freed pinned memory that was not allocated");
  found->second.forbid();
  freed_.push_back(std::move(found->second));
  host_memory_.erase(found);
}

void EmulatedDevice::check_device_range(const std::byte* from, std::size_t bytes) const {
  auto after = memory_.upper_bound(const_cast<std::byte*>(from));
  QUIRE_CHECK(after != memory_.begin(), "a copy outside of device memory");
  const auto& [begin, memory] = *--after;
  QUIRE_CHECK(from + bytes <= begin + memory.size(), "a copy outside of device memory");
}

void EmulatedDevice::copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
  enqueue({.kind = Operation::Kind::kCopyIn, .to = to, .from = from, .bytes = bytes}, stream);
}

void EmulatedDevice::copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
  std::fill_n(to, bytes, kUnwritten);
  enqueue({.kind = Operation::Kind::kCopyOut, .to = to, .from = from, .bytes = bytes}, stream);
}

void EmulatedDevice::fill(std::byte* to, std::byte value, std::size_t bytes, Stream stream) {
  enqueue({.kind = Operation::Kind::kFill, .to = to, .bytes = bytes, .value = value}, stream);
}

const Kernel& EmulatedDevice::kernel(std::string_view name) const {
  const auto found = std::ranges::find(kernels_, name, &EmulatedKernel::name);
  QUIRE_CHECK(found != kernels_.end(), "no kernel of that name");
  return *found;
}

void EmulatedDevice::launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes,
                                  Stream stream) {
  QUIRE_CHECK(args_bytes == kernel.args_bytes, "arguments of another kernel");
  QUIRE_CHECK(grid.x >= 1 && grid.x < (std::int64_t{1} << 31) && grid.y >= 1 && grid.y < 65536, "grid out of range");
  const auto* bytes = static_cast<const std::byte*>(args);
  enqueue({.kind = Operation::Kind::kLaunch,
           .kernel = static_cast<const EmulatedKernel*>(&kernel),
           .grid = grid,
           .args = std::vector<std::byte>(bytes, bytes + args_bytes)},
          stream);
}

Event EmulatedDevice::create_event() {
  events_.emplace_back();
  return static_cast<Event>(events_.size()) - 1;
}

void EmulatedDevice::record(Event event, Stream stream) {
  ++events_.at(static_cast<std::size_t>(event)).recorded;
  enqueue({.kind = Operation::Kind::kRecord, .event = event}, stream);
}

void EmulatedDevice::wait(Stream stream, Event event) {
  if (options_.ignore_waits) return;
  const std::int64_t target = events_.at(static_cast<std::size_t>(event)).recorded;
  enqueue({.kind = Operation::Kind::kWait, .event = event, .target = target}, stream);
}

void EmulatedDevice::enqueue(Operation operation, Stream stream) {
  streams_[index_of(stream)].push_back(std::move(operation));
  while (options_.immediate && run_one())
    ;
}

bool EmulatedDevice::can_run(Stream stream) const {
  const auto& queue = streams_[index_of(stream)];
  if (queue.empty()) return false;
  const Operation& first = queue.front();
  if (first.kind != Operation::Kind::kWait) return true;
  return events_[static_cast<std::size_t>(first.event)].completed >= first.target;
}

bool EmulatedDevice::run_one() {
  std::array<Stream, kNumStreams> runnable{};
  std::size_t count = 0;
  bool any = false;
  for (const Stream stream : {Stream::kCompute, Stream::kCopy}) {
    any = any || !streams_[index_of(stream)].empty();
    if (can_run(stream)) runnable[count++] = stream;
  }
  if (!any) return false;
  QUIRE_CHECK(count > 0, "streams that wait for each other");
  auto& queue = streams_[index_of(runnable[options_.seed == 0 ? 0 : random_() % count])];
  const Operation operation = std::move(queue.front());
  queue.pop_front();
  run(operation);
  return true;
}

// After an error nothing runs, but events complete.
bool EmulatedDevice::fails(int& countdown, const char* what) {
  if (error_.empty() && countdown >= 0 && countdown-- == 0) error_ = what;
  return !error_.empty();
}

void EmulatedDevice::run(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kCopyIn: return run_copy(operation, operation.to);
    case Operation::Kind::kCopyOut: return run_copy(operation, operation.from);
    case Operation::Kind::kFill:
      if (!error_.empty()) return;
      check_device_range(operation.to, operation.bytes);
      std::fill_n(operation.to, operation.bytes, operation.value);
      return;
    case Operation::Kind::kLaunch:
      if (fails(options_.failing_launch, "the GPU failed in a kernel")) return;
      return run_grid(operation);
    case Operation::Kind::kRecord: ++events_[static_cast<std::size_t>(operation.event)].completed; return;
    case Operation::Kind::kWait: return;
  }
}

void EmulatedDevice::run_copy(const Operation& operation, const std::byte* on_device) {
  if (fails(options_.failing_copy, "the GPU failed in a copy")) return;
  check_device_range(on_device, operation.bytes);
  std::memmove(operation.to, operation.from, operation.bytes);
}

// Blocks in an order drawn by the seed.
void EmulatedDevice::run_grid(const Operation& operation) {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(operation.grid.x * operation.grid.y));
  std::iota(blocks.begin(), blocks.end(), 0);
  if (options_.seed != 0) std::shuffle(blocks.begin(), blocks.end(), random_);
  for (const std::int64_t block : blocks)
    emulator_.run_block(*operation.kernel, operation.args.data(), block % operation.grid.x, block / operation.grid.x);
}

void EmulatedDevice::throw_error() const {
  if (!error_.empty()) throw DeviceError(error_);
}

// A caller that asks repeatedly sees it done in the end.
bool EmulatedDevice::done(Event event) {
  const EventState& state = events_.at(static_cast<std::size_t>(event));
  for (std::uint64_t i = random_() % 3; i > 0 && state.completed < state.recorded; --i)
    run_one();
  return state.completed == state.recorded;
}

void EmulatedDevice::synchronize(Event event) {
  const EventState& state = events_.at(static_cast<std::size_t>(event));
  while (state.completed < state.recorded)
    run_one();
  throw_error();
}

void EmulatedDevice::synchronize() {
  while (run_one())
    ;
  throw_error();
}

}  // namespace quire::gpu
