#include "kernels/emulated/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

namespace quire::gpu {

GuardedMemory::GuardedMemory(std::size_t bytes) : size_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (bytes + 15) / 16 * 16;
  const std::size_t usable = (rounded + page - 1) / page * page;
  page_bytes_ = usable + page;
  void* pages = mmap(nullptr, page_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<std::byte*>(pages);
  mprotect(pages_ + usable, page, PROT_NONE);
  data_ = pages_ + usable - rounded;
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept {
  *this = std::move(other);
}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(page_bytes_, other.page_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

GuardedMemory::~GuardedMemory() {
  if (pages_ != nullptr) munmap(pages_, page_bytes_);
}

void GuardedMemory::fill(std::byte value) {
  std::memset(data_, static_cast<int>(value), size_);
}

void GuardedMemory::forbid() {
  madvise(pages_, page_bytes_, MADV_DONTNEED);
  mprotect(pages_, page_bytes_, PROT_NONE);
}

}  // namespace quire::gpu
