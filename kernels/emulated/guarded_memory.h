// GuardedMemory: bytes that end where a page begins whose every access faults; released memory faults too. Move-only
// owner; any thread.
#pragma once

#include <cstddef>
#include <span>

namespace quire::gpu {

class GuardedMemory {
 public:
  GuardedMemory() = default;
  explicit GuardedMemory(std::size_t bytes);
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;
  ~GuardedMemory();

  std::byte* data() const { return data_; }  // aligned to 16 bytes
  std::size_t size() const { return size_; }
  void fill(std::byte value);
  // Makes every access fault from now on; the addresses stay reserved while this object lives.
  void forbid();

 private:
  std::byte* pages_ = nullptr;
  std::size_t page_bytes_ = 0;  // the guard included
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quire::gpu
