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

// Adds a lock, which the library's buffer lacks.
class Pages {
 public:
  Pages(void* memory, std::size_t bytes) : buffer_(boost::interprocess::create_only, memory, bytes) {}

  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return buffer_.allocate(bytes, std::nothrow);
  }

  void release(void* part) {
    const std::lock_guard lock(mutex_);
    buffer_.deallocate(part);
  }

  bool holds(const void* memory) const {
    const auto* const begin = static_cast<const std::byte*>(buffer_.get_address());
    const auto* const place = static_cast<const std::byte*>(memory);
    return std::greater_equal<>{}(place, begin) && std::less<>{}(place, begin + buffer_.get_size());
  }

 private:
  std::mutex mutex_;
  boost::interprocess::managed_external_buffer buffer_;
};

// Process-wide, because memory is also released by allocators without a state.
std::atomic<Pages*> kept_pages{nullptr};
std::once_flag is_kept;

}  // namespace

void keep_sure_memory() {
  std::call_once(is_kept, [] {
    void* const memory =
        ::mmap(nullptr, kSureBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    kept_pages.store(new Pages(memory, kSureBytes));
  });
}

void* allocate_surely(std::size_t bytes) noexcept {
  while (true) {
    if (void* const memory = std::malloc(bytes)) return memory;
    Pages* const pages = kept_pages.load();
    void* const part = pages != nullptr ? pages->allocate(bytes) : nullptr;
    if (part != nullptr) return part;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void release_surely(void* memory) noexcept {
  Pages* const pages = kept_pages.load();
  if (pages != nullptr && pages->holds(memory))
    pages->release(memory);
  else
    std::free(memory);
}

}  // namespace quire
