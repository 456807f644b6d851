// StepUploads: the arrays that operations take from the host, copied to the device through pinned memory. Engine thread
// only. Invariant: pinned and device memory of an array is not used again before reset(), which is called when all that
// was enqueued is done.
#pragma once

#include <span>
#include <vector>

#include "kernels/gpu/device_memory.h"

namespace quire::gpu {

class StepUploads {
 public:
  explicit StepUploads(Device& device) : device_(device) {}
  StepUploads(const StepUploads&) = delete;
  StepUploads& operator=(const StepUploads&) = delete;
  ~StepUploads();

  // Where the values lie on the device for what is enqueued from here on. What every layer takes is sent once.
  template <class T>
  const T* put(std::span<const T> values) {
    return reinterpret_cast<const T*>(put_bytes(std::as_bytes(values)));
  }
  void reset();

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
    std::byte* host;
    DeviceMemory device;
    std::size_t used;
  };
  static constexpr std::size_t kRemembered = 8;

  const std::byte* put_bytes(std::span<const std::byte> values);
  Place take(std::size_t bytes);

  Device& device_;
  std::vector<Chunk> chunks_;
  std::vector<Sent> sent_;  // the last ones since reset()
};

}  // namespace quire::gpu
