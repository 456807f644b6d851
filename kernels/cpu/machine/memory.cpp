#include "kernels/cpu/machine/memory.h"

#include <numa.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace quire {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Pieces of work go to the next free thread, so on several memory nodes every page is as likely to be read from one
// as from another: spread over all of them, reads have the bandwidth of all.
void spread_over_nodes(void* memory, std::size_t bytes) {
  if (numa_available() >= 0 && numa_num_task_nodes() > 1) numa_interleave_memory(memory, bytes, numa_all_nodes_ptr);
}

}  // namespace

AlignedMemory::AlignedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  // Huge pages spare address translation on long reads; they need room to begin at a multiple of their size.
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // 4, 16 or 64 KiB
  const std::size_t kept = (bytes + page - 1) / page * page;
  void* memory = mmap(nullptr, kept + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(memory);
  if (slack > 0) {
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(memory) % kHugePage) % kHugePage;
    if (before > 0) munmap(begin, before);
    begin += before;
    if (before < slack) munmap(begin + kept, slack - before);
    // Both calls are hints: a refusal costs only speed.
    madvise(begin, kept, MADV_HUGEPAGE);
    spread_over_nodes(begin, kept);
  }
  data_ = begin;
}

AlignedMemory::~AlignedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

SharedBytes MemoryBlocks::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (block_ == nullptr || taken > block_->size() - used_) {
    const std::size_t whole_pages = (taken + kHugePage - 1) / kHugePage * kHugePage;
    block_ = std::make_shared<AlignedMemory>(std::max(whole_pages, kBlockBytes));
    used_ = 0;
  }
  std::byte* const begin = block_->data() + used_;
  used_ += taken;
  return {block_, begin};
}

}  // namespace quire
