// Arrays of the tests on a device, copied in and out through its streams, never by a view. One thread at a time.
#pragma once

#include <span>
#include <vector>

#include "kernels/gpu/device/device_memory.h"
#include "tests/kernels/random_data.h"

namespace quire::test {

template <class T>
class DeviceArray {
 public:
  DeviceArray(gpu::Device& device, std::span<const T> values)
      : device_(device), size_(values.size()), memory_(device, values.size_bytes(), "a test") {
    device.copy_to_device(memory_.data(), reinterpret_cast<const std::byte*>(values.data()), values.size_bytes(),
                          gpu::Stream::kCompute);
    device.synchronize();
  }

  T* data() const { return memory_.template as<T>(); }
  std::vector<T> read() const {
    std::vector<T> out(size_);
    device_.copy_to_host(reinterpret_cast<std::byte*>(out.data()), memory_.data(), size_ * sizeof(T),
                         gpu::Stream::kCompute);
    device_.synchronize();
    return out;
  }

 private:
  gpu::Device& device_;
  std::size_t size_;
  gpu::DeviceMemory memory_;
};

// A matrix with the padding of its rows, which no kernel may touch.
class DeviceMatrix {
 public:
  DeviceMatrix(gpu::Device& device, const Matrix& from) : shape_(from), data_(device, from.data) {}

  MatrixView view() const { return {data_.data(), shape_.rows, shape_.cols, shape_.stride}; }
  Matrix read() const {
    Matrix out = shape_;
    out.data = data_.read();
    return out;
  }

 private:
  Matrix shape_;
  DeviceArray<float> data_;
};

}  // namespace quire::test
