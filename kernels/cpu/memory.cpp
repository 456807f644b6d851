#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace quire {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;

}  // namespace

AlignedMemory::AlignedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  // Huge pages spare address translation on long reads; they need room to begin at a multiple of their size.
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  const std::size_t kept = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mmap(nullptr, kept + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(memory);
  if (slack > 0) {
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(memory) % kHugePage) % kHugePage;
    if (before > 0) munmap(begin, before);
    begin += before;
    if (before < slack) munmap(begin + kept, slack - before);
    madvise(begin, kept, MADV_HUGEPAGE);  // a hint: refused, nothing but speed is lost
  }
  data_ = begin;
}

AlignedMemory::~AlignedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace quire
