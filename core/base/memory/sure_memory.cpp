#include "core/base/memory/sure_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

namespace quire {

namespace {

using Pages = boost::interprocess::managed_external_buffer;

// An allocator that stands in for the C library's has no object to live in.
std::atomic<Pages*> kept_pages{nullptr};
std::once_flag is_kept;

bool holds(const Pages& pages, const void* memory) {
  const auto* const begin = static_cast<const std::byte*>(pages.get_address());
  const auto* const place = static_cast<const std::byte*>(memory);
  return std::greater_equal<>{}(place, begin) && std::less<>{}(place, begin + pages.get_size());
}

}  // namespace

void keep_sure_memory() {
  std::call_once(is_kept, [] {
    void* const memory =
        ::mmap(nullptr, kSureBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    kept_pages.store(new Pages(boost::interprocess::create_only, memory, kSureBytes));
  });
}

void* allocate_surely(std::size_t bytes) noexcept {
  while (true) {
    if (void* const memory = std::malloc(bytes)) return memory;
    Pages* const pages = kept_pages.load();
    void* const part = pages != nullptr ? pages->allocate(bytes, std::nothrow) : nullptr;
    if (part != nullptr) return part;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void release_surely(void* memory) noexcept {
  Pages* const pages = kept_pages.load();
  if (pages != nullptr && holds(*pages, memory))
    pages->deallocate(memory);
  else
    std::free(memory);
}

}  // namespace quire
