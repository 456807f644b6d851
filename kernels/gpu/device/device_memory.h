// DeviceMemory: an array in a device's memory. Move-only owner; any thread, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/gpu/device/device.h"

namespace quire::gpu {

class DeviceMemory {
 public:
  // kBehind: work enqueued before the release may still use the memory.
  enum class Release : std::uint8_t { kNow, kBehind };

  DeviceMemory() = default;
  DeviceMemory(Device& device, std::size_t bytes, std::string_view what, Release release = Release::kNow)
      : device_(&device), data_(device.allocate(bytes, what)), bytes_(bytes), release_(release) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~DeviceMemory() {
    if (device_ == nullptr) return;
    if (release_ == Release::kBehind) {
      device_->free_behind(data_);
    } else {
      device_->free(data_);
    }
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_ = Release::kNow;
};

// Makes `memory` hold at least `bytes`, with undefined content; waits for enqueued work that uses the old memory.
inline void grow(Device& device, DeviceMemory& memory, std::size_t bytes, std::string_view what) {
  if (memory.bytes() >= bytes) return;
  device.synchronize();
  memory = DeviceMemory();
  memory = DeviceMemory(device, bytes, what);
}

}  // namespace quire::gpu
