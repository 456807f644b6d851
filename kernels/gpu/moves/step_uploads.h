// StepUploads: the arrays that operations take from the host, copied to the device through pinned memory, those of a
// step side by side. Engine thread only. There are two sets of that memory, for two steps in flight. Invariant: pinned
// and device memory of an array is not used again before begin() or reset() of its set, which is called when all that
// was enqueued with it is done.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/device/gathering_device.h"

namespace quire::gpu {

class StepUploads {
 public:
  explicit StepUploads(GatheringDevice& device) : device_(device) {}
  StepUploads(const StepUploads&) = delete;
  StepUploads& operator=(const StepUploads&) = delete;
  ~StepUploads();

  // The values' address on the device, for work enqueued from here on. Values that every layer takes are sent once.
  template <class T>
  const T* put(std::span<const T> values) {
    return reinterpret_cast<const T*>(put_bytes(std::as_bytes(values)));
  }
  // Sends the values to existing memory on the device.
  void send(std::span<const std::byte> values, std::byte* to);
  // Memory of the device alone, for as long as that of the arrays.
  std::byte* room(std::size_t bytes);
  // Arrays come from set 0 or 1 from here on.
  void begin(std::size_t set);
  void reset() { begin(current_); }

 private:
  struct Place {
    std::byte* host;
    std::byte* device;
  };
  struct Sent {
    Place place;
    std::size_t bytes;
  };
  struct Chunk {
    std::byte* host;  // null: of the device alone
    DeviceMemory device;
    std::size_t used;
  };
  struct Set {
    std::vector<Chunk> arrays;
    std::vector<Chunk> rooms;
    std::vector<Sent> sent;  // the last ones since begin()
  };
  static constexpr std::size_t kRemembered = 256;

  const std::byte* put_bytes(std::span<const std::byte> values);
  Chunk& chunk_for(std::vector<Chunk>& chunks, std::size_t bytes, bool is_pinned);
  Place take(std::size_t bytes);

  GatheringDevice& device_;
  std::array<Set, 2> sets_;
  std::size_t current_ = 0;
};

}  // namespace quire::gpu
