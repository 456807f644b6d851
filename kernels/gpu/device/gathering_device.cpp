#include "kernels/gpu/device/gathering_device.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace quire::gpu {
namespace {

// Launches that are not expected again begin in groups: the device computes while the host prepares the next ones.
constexpr std::size_t kPlainGroup = 64;
constexpr std::size_t kLeastInGraph = 4;
// More than the steps in flight, so that the least recently used graph is idle.
constexpr std::size_t kMostGraphs = 16;

}  // namespace

Launch GatheringDevice::Gathered::launch(std::size_t index) const {
  const Item& item = items[index];
  return {
      .kernel = item.kernel, .grid = item.grid, .args = std::span(args).subspan(item.args, item.kernel->args_bytes)};
}

bool GatheringDevice::Gathered::has_kernels_of(const Gathered& other) const {
  return std::ranges::equal(items, other.items, {}, &Item::kernel, &Item::kernel);
}

// Compares launches of the same kernels.
bool GatheringDevice::Gathered::is_same(std::size_t index, const Gathered& other) const {
  const Launch mine = launch(index);
  const Launch theirs = other.launch(index);
  return mine.grid.x == theirs.grid.x && mine.grid.y == theirs.grid.y &&
         std::memcmp(mine.args.data(), theirs.args.data(), mine.args.size()) == 0;
}

void GatheringDevice::Gathered::clear() {
  items.clear();
  args.clear();
}

GatheringDevice::GatheringDevice(std::unique_ptr<Device> device, bool gathers)
    : device_(std::move(device)), gathers_(gathers) {}

void GatheringDevice::send_array(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!copies_.empty()) {
    Copy& last = copies_.back();
    if (last.to + last.bytes == to && last.from + last.bytes == from) {
      last.bytes += bytes;
      return;
    }
  }
  copies_.push_back({to, from, bytes});
  if (!gathers_) flush();
}

void GatheringDevice::launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes,
                                   Stream stream) {
  if (stream != Stream::kCompute) return device_->launch_bytes(kernel, grid, args, args_bytes, stream);
  if (gathered_.items.empty()) {
    const std::lock_guard lock(mutex_);
    has_launches_ = true;
  }
  gathered_.items.push_back({&kernel, grid, gathered_.args.size()});
  const auto* bytes = static_cast<const std::byte*>(args);
  gathered_.args.insert(gathered_.args.end(), bytes, bytes + args_bytes);
  if (!gathers_ || (!is_repetition_ && gathered_.items.size() >= kPlainGroup)) flush();
}

void GatheringDevice::flush() {
  for (const Copy& copy : copies_)
    device_->copy_to_device(copy.to, copy.from, copy.bytes, Stream::kCompute);
  counts_.num_copies += std::ssize(copies_);
  copies_.clear();
  if (is_repetition_ && gathers_ && gathered_.items.size() >= kLeastInGraph) {
    launch_as_graph();
  } else {
    launch_plainly();
  }
  gathered_.clear();
  is_repetition_ = false;
  free_given_up();
}

void GatheringDevice::launch_plainly() {
  for (std::size_t i = 0; i < gathered_.items.size(); ++i) {
    const Launch launch = gathered_.launch(i);
    device_->launch_bytes(*launch.kernel, launch.grid, launch.args.data(), launch.args.size(), Stream::kCompute);
  }
  counts_.num_plain_launches += std::ssize(gathered_.items);
}

void GatheringDevice::free_behind(std::byte* memory) {
  {
    const std::lock_guard lock(mutex_);
    if (has_launches_) return given_up_.push_back(memory);
  }
  device_->free_behind(memory);
}

void GatheringDevice::free_given_up() {
  std::vector<std::byte*> given_up;
  {
    const std::lock_guard lock(mutex_);
    has_launches_ = false;
    given_up.swap(given_up_);
  }
  for (std::byte* memory : given_up)
    device_->free_behind(memory);
}

// The graph with the same kernels and the fewest different launches; null: there is none.
GatheringDevice::Known* GatheringDevice::closest(std::size_t& num_different) {
  Known* best = nullptr;
  num_different = std::numeric_limits<std::size_t>::max();
  for (Known& known : known_) {
    if (!gathered_.has_kernels_of(known.launches)) continue;
    std::size_t count = 0;
    for (std::size_t i = 0; i < gathered_.items.size() && count < num_different; ++i)
      count += gathered_.is_same(i, known.launches) ? 0 : 1;
    if (count >= num_different) continue;
    num_different = count;
    best = &known;
  }
  return best;
}

GatheringDevice::Known& GatheringDevice::make_graph() {
  if (known_.size() == kMostGraphs) {
    const auto oldest = std::ranges::min_element(known_, {}, &Known::last_use);
    device_->destroy_graph(oldest->graph);
    known_.erase(oldest);
  }
  std::vector<Launch> launches;
  for (std::size_t i = 0; i < gathered_.items.size(); ++i)
    launches.push_back(gathered_.launch(i));
  ++counts_.num_graphs;
  return known_.emplace_back(Known{gathered_, device_->create_graph(launches), 0});
}

void GatheringDevice::update(Known& known) {
  for (std::size_t i = 0; i < gathered_.items.size(); ++i) {
    if (gathered_.is_same(i, known.launches)) continue;
    device_->update_graph(known.graph, i, gathered_.launch(i));
    ++counts_.num_updates;
  }
  known.launches = gathered_;
}

// Changing most of a graph takes as long as making one, which can serve again when the same launches return.
void GatheringDevice::launch_as_graph() {
  std::size_t num_different = 0;
  Known* known = closest(num_different);
  const bool is_full = known_.size() == kMostGraphs;
  if (known == nullptr || (num_different > gathered_.items.size() / 2 && !is_full)) {
    known = &make_graph();
  } else if (num_different > 0) {
    update(*known);
  }
  known->last_use = ++num_uses_;
  ++counts_.num_graph_launches;
  device_->launch_graph(known->graph, Stream::kCompute);
}

void GatheringDevice::flush_for(Stream stream) {
  if (stream == Stream::kCompute) flush();
}

void GatheringDevice::copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
  flush_for(stream);
  device_->copy_to_device(to, from, bytes, stream);
}

void GatheringDevice::copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
  flush_for(stream);
  device_->copy_to_host(to, from, bytes, stream);
}

void GatheringDevice::fill(std::byte* to, std::byte value, std::size_t bytes, Stream stream) {
  flush_for(stream);
  device_->fill(to, value, bytes, stream);
}

void GatheringDevice::update_graph(Graph graph, std::size_t index, const Launch& launch) {
  device_->update_graph(graph, index, launch);
}

void GatheringDevice::launch_graph(Graph graph, Stream stream) {
  flush_for(stream);
  device_->launch_graph(graph, stream);
}

void GatheringDevice::record(Event event, Stream stream) {
  flush_for(stream);
  device_->record(event, stream);
}

void GatheringDevice::wait(Stream stream, Event event) {
  flush_for(stream);
  device_->wait(stream, event);
}

void GatheringDevice::wait_for(Stream stream, const Device& peer, Event event) {
  flush_for(stream);
  device_->wait_for(stream, other_of(peer), event);
}

void GatheringDevice::copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes,
                                Stream stream) {
  flush_for(stream);
  device_->copy_from(other_of(peer), to, from, bytes, stream);
}

void GatheringDevice::synchronize(Event event) {
  flush();
  device_->synchronize(event);
}

void GatheringDevice::synchronize() {
  flush();
  device_->synchronize();
}

}  // namespace quire::gpu
