// StepUploads: the arrays that operations take from the host, copied to the device through pinned memory. Engine thread
// only. Invariant: pinned and device memory of an array is not used again before reset(), which is called when all that
// was enqueued is done.
#pragma once

#include <cstring>
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

  // Where the values lie on the device for what is enqueued from here on.
  template <class T>
  const T* put(std::span<const T> values) {
    const Place place = take(values.size_bytes());
    std::memcpy(place.host, values.data(), values.size_bytes());
    if (!values.empty()) device_.copy_to_device(place.device, place.host, values.size_bytes(), Stream::kCompute);
    return reinterpret_cast<const T*>(place.device);
  }
  void reset();

 private:
  struct Place {
    std::byte* host;
    std::byte* device;
  };
  struct Chunk {
    std::byte* host;
    DeviceMemory device;
    std::size_t used;
  };
  Place take(std::size_t bytes);

  Device& device_;
  std::vector<Chunk> chunks_;
};

}  // namespace quire::gpu
