#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <new>

namespace quire {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

AlignedMemory::AlignedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // Huge pages spare address translation on long reads. A hint: refused, nothing but speed is lost.
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

AlignedMemory::~AlignedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace quire
