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
    : options_(options),
      machine_(options.machine != nullptr ? options.machine : std::make_shared<EmulatedMachine>()),
      emulator_({options.seed, options.mutation}),
      random_(options.seed) {
  add_row_kernels(kernels_);
  add_attention_kernels(kernels_);
  add_draw_kernels(kernels_);
  add_recurrent_kernels(kernels_);
  add_attention_tile_kernels(kernels_);
  add_linear_skinny_kernels(kernels_);
  add_linear_wide_kernels(kernels_);
  add_linear_half_kernels(kernels_);
  const auto locked = lock();
  machine_->devices.push_back(this);
}

EmulatedDevice::~EmulatedDevice() {
  const auto locked = lock();
  std::erase(machine_->devices, this);
}

std::size_t EmulatedDevice::free_memory() const {
  const auto locked = lock();
  return options_.memory - allocated_;
}

std::byte* EmulatedDevice::allocate(std::size_t bytes, std::string_view what) {
  const auto locked = lock();
  const bool injected = options_.failing_allocation >= 0 && options_.failing_allocation-- == 0;
  if (injected || bytes > free_memory())
    throw DeviceError(options_.label + " has no " + std::to_string(bytes) + " bytes for " + std::string(what));
  GuardedMemory memory(bytes);
  memory.fill(kUnwritten);
  std::byte* const data = memory.data();
  allocated_ += bytes;
  memory_.emplace(data, std::move(memory));
  return data;
}

void EmulatedDevice::free(std::byte* memory) {
  if (memory == nullptr) return;
  const auto locked = lock();
  const auto found = memory_.find(memory);
  QUIRE_CHECK(found != memory_.end(), "freed device memory that was not allocated");
  allocated_ -= found->second.size();
  found->second.forbid();
  freed_.push_back(std::move(found->second));
  memory_.erase(found);
}

void EmulatedDevice::free_behind(std::byte* memory) {
  enqueue({.kind = Operation::Kind::kFree, .to = memory}, Stream::kCompute);
}

void EmulatedDevice::upload(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto locked = lock();
  run_copy({.kind = Operation::Kind::kCopyIn, .to = to, .from = from, .bytes = bytes});
  throw_error();
}

std::byte* EmulatedDevice::allocate_host(std::size_t bytes) {
  const auto locked = lock();
  GuardedMemory memory(bytes);
  std::byte* const data = memory.data();
  host_memory_.emplace(data, std::move(memory));
  return data;
}

void EmulatedDevice::free_host(std::byte* memory) {
  if (memory == nullptr) return;
  const auto locked = lock();
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
  num_copies_in_ += stream == Stream::kCompute ? 1 : 0;
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
  enqueue(checked({&kernel, grid, {static_cast<const std::byte*>(args), args_bytes}}), stream);
}

EmulatedDevice::Operation EmulatedDevice::checked(const Launch& launch) {
  const Grid grid = launch.grid;
  QUIRE_CHECK(launch.args.size() == launch.kernel->args_bytes, "arguments of another kernel");
  QUIRE_CHECK(grid.x >= 1 && grid.x < (std::int64_t{1} << 31) && grid.y >= 1 && grid.y < 65536, "grid out of range");
  return {.kind = Operation::Kind::kLaunch,
          .kernel = static_cast<const EmulatedKernel*>(launch.kernel),
          .grid = grid,
          .args = std::vector<std::byte>(launch.args.begin(), launch.args.end())};
}

Graph EmulatedDevice::create_graph(std::span<const Launch> launches) {
  std::vector<Operation>& operations = graphs_[++last_graph_];
  for (const Launch& launch : launches)
    operations.push_back(checked(launch));
  return last_graph_;
}

void EmulatedDevice::update_graph(Graph graph, std::size_t index, const Launch& launch) {
  Operation& operation = graphs_.at(graph).at(index);
  QUIRE_CHECK(operation.kernel == launch.kernel, "a graph's kernel does not change");
  if (!options_.ignore_updates) operation = checked(launch);
}

void EmulatedDevice::launch_graph(Graph graph, Stream stream) {
  ++num_graph_launches_;
  for (const Operation& operation : graphs_.at(graph))
    enqueue(operation, stream);
}

void EmulatedDevice::destroy_graph(Graph graph) {
  QUIRE_CHECK(graphs_.erase(graph) == 1, "a graph that there is not");
}

Event EmulatedDevice::create_event() {
  const auto locked = lock();
  events_.emplace_back();
  return static_cast<Event>(events_.size()) - 1;
}

void EmulatedDevice::complete(EventState& event) {
  ++event.completed;
  event.at = std::chrono::steady_clock::now();
}

double EmulatedDevice::seconds_between(Event first, Event second) {
  const auto at = [&](Event event) { return events_.at(static_cast<std::size_t>(event)).at; };
  return std::chrono::duration<double>(at(second) - at(first)).count();
}

void EmulatedDevice::record(Event event, Stream stream) {
  const auto locked = lock();
  ++events_.at(static_cast<std::size_t>(event)).recorded;
  enqueue({.kind = Operation::Kind::kRecord, .event = event}, stream);
}

void EmulatedDevice::wait(Stream stream, Event event) {
  wait_for(stream, *this, event);
}

void EmulatedDevice::meet(const Device& peer) {
  QUIRE_CHECK(machine_ == static_cast<const EmulatedDevice&>(peer).machine_, "a peer in another machine");
}

void EmulatedDevice::wait_for(Stream stream, const Device& peer, Event event) {
  if (options_.ignore_waits) return;
  const auto locked = lock();
  const auto& owner = static_cast<const EmulatedDevice&>(peer);
  const std::int64_t target = owner.events_.at(static_cast<std::size_t>(event)).recorded;
  enqueue({.kind = Operation::Kind::kWait, .event = event, .target = target, .peer = &owner}, stream);
}

void EmulatedDevice::copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes,
                               Stream stream) {
  const auto& owner = static_cast<const EmulatedDevice&>(peer);
  enqueue({.kind = Operation::Kind::kCopyPeer, .to = to, .from = from, .bytes = bytes, .peer = &owner}, stream);
}

void EmulatedDevice::enqueue(Operation operation, Stream stream) {
  const auto locked = lock();
  streams_[index_of(stream)].push_back(std::move(operation));
  while (options_.immediate && run_one())
    ;
}

bool EmulatedDevice::can_run(Stream stream) const {
  const auto& queue = streams_[index_of(stream)];
  if (queue.empty()) return false;
  const Operation& first = queue.front();
  if (first.kind != Operation::Kind::kWait) return true;
  return first.peer->events_[static_cast<std::size_t>(first.event)].completed >= first.target;
}

bool EmulatedDevice::is_idle() const {
  return std::ranges::all_of(streams_, [](const auto& queue) { return queue.empty(); });
}

void EmulatedDevice::add_runnable(std::vector<Runnable>& out) {
  for (const Stream stream : {Stream::kCompute, Stream::kCopy}) {
    if (can_run(stream)) out.push_back({this, stream});
  }
}

bool EmulatedDevice::run_one() {
  const auto locked = lock();
  if (is_idle()) return false;
  runnable_.clear();
  add_runnable(runnable_);
  for (EmulatedDevice* peer : machine_->devices) {
    if (peer != this) peer->add_runnable(runnable_);
  }
  QUIRE_CHECK(!runnable_.empty(), "streams that wait for each other");
  const Runnable next = runnable_[options_.seed == 0 ? 0 : random_() % runnable_.size()];
  next.device->run_next(next.stream);
  return true;
}

void EmulatedDevice::run_next(Stream stream) {
  auto& queue = streams_[index_of(stream)];
  const Operation operation = std::move(queue.front());
  queue.pop_front();
  run(operation);
}

// After an error no work runs, but events complete.
bool EmulatedDevice::fails(int& countdown, const char* where) {
  if (error_.empty() && countdown >= 0 && countdown-- == 0) error_ = options_.label + " failed in " + where;
  return !error_.empty();
}

void EmulatedDevice::run(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kCopyIn:
    case Operation::Kind::kCopyOut:
    case Operation::Kind::kCopyPeer: return run_copy(operation);
    case Operation::Kind::kFill:
      if (!error_.empty()) return;
      check_device_range(operation.to, operation.bytes);
      std::fill_n(operation.to, operation.bytes, operation.value);
      return;
    case Operation::Kind::kLaunch:
      if (fails(options_.failing_launch, "a kernel")) return;
      return run_grid(operation);
    case Operation::Kind::kRecord: return complete(events_[static_cast<std::size_t>(operation.event)]);
    case Operation::Kind::kWait: return;
    case Operation::Kind::kFree: return free(operation.to);
  }
}

void EmulatedDevice::run_copy(const Operation& operation) {
  if (fails(options_.failing_copy, "a copy")) return;
  if (operation.kind != Operation::Kind::kCopyOut) check_device_range(operation.to, operation.bytes);
  if (operation.kind == Operation::Kind::kCopyOut) check_device_range(operation.from, operation.bytes);
  if (operation.kind == Operation::Kind::kCopyPeer) operation.peer->check_device_range(operation.from, operation.bytes);
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
  const auto locked = lock();
  if (!error_.empty()) throw DeviceError(error_);
}

// A caller that asks repeatedly sees it done in the end.
bool EmulatedDevice::done(Event event) {
  const auto locked = lock();
  const EventState& state = events_.at(static_cast<std::size_t>(event));
  for (std::uint64_t i = random_() % 3; i > 0 && state.completed < state.recorded; --i)
    run_one();
  return state.completed == state.recorded;
}

void EmulatedDevice::synchronize(Event event) {
  if (options_.ignored_wait >= 0 && options_.ignored_wait-- == 0) return;
  const auto is_done = [&] {
    const auto locked = lock();
    const EventState& state = events_.at(static_cast<std::size_t>(event));
    return state.completed == state.recorded;
  };
  while (!is_done())
    run_one();
  throw_error();
}

void EmulatedDevice::synchronize() {
  const auto locked = lock();
  while (run_one())
    ;
  throw_error();
}

}  // namespace quire::gpu
