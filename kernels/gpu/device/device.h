// Device: a GPU's memory, streams, events and kernels, as the backend uses them. Engine thread only, but for allocate,
// free, upload, free_behind and kernel: any thread, also while the engine's uses the device. Devices that work together
// (peers) are used by a thread each. What is enqueued on a stream runs in order; streams, of other devices too, run
// beside each other but for the events that they wait for. Host memory of a copy may be read or written at any time
// until the stream has come to it. Errors of what was enqueued are thrown by the next synchronize(), as DeviceError,
// and by every one after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/device_error.h"

namespace quire::gpu {

using quire::DeviceError;

// A kernel of the device, for as long as the device lives.
struct Kernel {
  std::string name;
  int threads = 0;  // per block
  int shared_bytes = 0;
  std::size_t args_bytes = 0;
};

struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
};

// Number of groups of `each`; the last one may be smaller.
constexpr std::int64_t groups_of(std::int64_t count, std::int64_t each) {
  return (count + each - 1) / each;
}

enum class Stream : std::uint8_t { kCompute, kCopy };
inline constexpr int kNumStreams = 2;

using Event = std::int64_t;

// A kernel of a graph. args: the kernel's Args.
struct Launch {
  const Kernel* kernel = nullptr;
  Grid grid;
  std::span<const std::byte> args;
};

// Launches that are enqueued together.
using Graph = std::int64_t;

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual std::size_t total_memory() const = 0;
  virtual std::size_t free_memory() const = 0;

  // Aligned to 16 bytes at least; its content is anything. what: named in errors. Throws DeviceError.
  virtual std::byte* allocate(std::size_t bytes, std::string_view what) = 0;
  // No enqueued work may use the memory any more.
  virtual void free(std::byte* memory) = 0;
  // Frees the memory once the work enqueued on the compute stream so far is done.
  virtual void free_behind(std::byte* memory) = 0;
  // Copies to the device independently of enqueued work, and returns when done. Throws DeviceError.
  virtual void upload(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual std::byte* allocate_host(std::size_t bytes) = 0;  // pinned
  virtual void free_host(std::byte* memory) = 0;

  virtual void copy_to_device(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) = 0;
  virtual void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) = 0;
  virtual void fill(std::byte* to, std::byte value, std::size_t bytes, Stream stream) = 0;

  // The kernel of that name; aborts if there is none.
  virtual const Kernel& kernel(std::string_view name) const = 0;
  // args: the kernel's Args, copied before this returns.
  virtual void launch_bytes(const Kernel& kernel, Grid grid, const void* args, std::size_t args_bytes,
                            Stream stream) = 0;
  template <class Args>
  void launch(const Kernel& kernel, Grid grid, const Args& args, Stream stream = Stream::kCompute) {
    static_assert(std::is_trivially_copyable_v<Args>);
    Args copied = args;
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&copied);  // launches with the same arguments have the same bytes
#endif
    launch_bytes(kernel, grid, &copied, sizeof copied, stream);
  }

  // Runs the launches in this order; the memory that they view is copied.
  virtual Graph create_graph(std::span<const Launch> launches) = 0;
  // Changes the grid and arguments of a kernel in the graph's later launches.
  virtual void update_graph(Graph graph, std::size_t index, const Launch& launch) = 0;
  virtual void launch_graph(Graph graph, Stream stream) = 0;
  virtual void destroy_graph(Graph graph) = 0;  // no launch of it may be enqueued any more

  // An event is done when all that was on the stream before record() is; a new event is done.
  virtual Event create_event() = 0;
  // An event whose time is known once it is done.
  virtual Event create_timed_event() = 0;
  virtual double seconds_between(Event first, Event second) = 0;  // both from create_timed_event()
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  virtual bool done(Event event) = 0;
  virtual void synchronize(Event event) = 0;
  virtual void synchronize() = 0;  // waits for all streams

  // Peers are of the same class. Once, before the other two: copies may go directly from one to the other where the
  // machine can.
  virtual void meet(const Device& peer) = 0;
  // Does what wait() does, for an event that the peer has recorded.
  virtual void wait_for(Stream stream, const Device& peer, Event event) = 0;
  virtual void copy_from(const Device& peer, std::byte* to, const std::byte* from, std::size_t bytes,
                         Stream stream) = 0;
};

}  // namespace quire::gpu
