// DeviceMemory: an array in a device's memory. Move-only owner. Engine thread only.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "kernels/gpu/device.h"

namespace quire::gpu {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, std::size_t bytes, std::string_view what)
      : device_(&device), data_(device.allocate(bytes, what)), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (device_ != nullptr) device_->free(data_);
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
};

}  // namespace quire::gpu
