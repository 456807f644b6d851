// Aligned memory for weights, caches and scratch. One thread at a time.
// Invariant: 64-byte alignment; large areas are huge pages where the system has them, spread over the memory nodes.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace quire {

// Move-only owner of `bytes` zeroed bytes. Throws std::bad_alloc.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(std::size_t bytes);
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Zeroed bytes in an area that lives as long as they are held.
using SharedBytes = std::shared_ptr<std::byte>;

inline SharedBytes share(AlignedMemory memory) {
  const auto owner = std::make_shared<AlignedMemory>(std::move(memory));
  return {owner, owner->data()};
}

// Cuts memory for objects of equal lifetime, such as the matrices of a model, out of blocks of huge pages: in areas of
// their own, matrices of one or two MiB would get small pages. A block is freed with its last object.
class MemoryBlocks {
 public:
  SharedBytes take(std::size_t bytes);

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 20;

  std::shared_ptr<AlignedMemory> block_;
  std::size_t used_ = 0;
};

// Scratch that grows to the largest request and is then reused; contents do not survive growth.
class Scratch {
 public:
  template <class T>
  T* get(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes > memory_.size()) memory_ = AlignedMemory(bytes + bytes / 4);
    return reinterpret_cast<T*>(memory_.data());
  }

 private:
  AlignedMemory memory_;
};

}  // namespace quire
