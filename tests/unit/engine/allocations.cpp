#include "tests/unit/engine/allocations.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<std::int64_t> count{0};
std::atomic<bool> all_fail{false};
std::atomic<std::int64_t> num_until_failure{0};  // 1: the next one throws; 0: none does
std::atomic<quire::test::FailsIn> fails_in{quire::test::FailsIn::kAll};
std::atomic<pid_t> asked_by{0};
thread_local bool is_fallible = false;
thread_local bool is_exempt = false;

bool can_fail() {
  switch (fails_in.load(std::memory_order_relaxed)) {
    case quire::test::FailsIn::kAll: return true;
    case quire::test::FailsIn::kFallible: return is_fallible;
    case quire::test::FailsIn::kOtherThreads: return !is_exempt && gettid() != asked_by.load(std::memory_order_relaxed);
  }
  return false;
}

// nlohmann::json's destructor allocates for the elements it destroys; it must not fail, and the daemon keeps a reserve
// for it (core/base/memory_reserve.h). Detected if the program exports its symbols.
bool is_spared() {
  void* frames[16];
  const int num_frames = ::backtrace(frames, 16);
  for (int i = 0; i < num_frames; ++i) {
    Dl_info info{};
    if (::dladdr(frames[i], &info) == 0 || info.dli_sname == nullptr) continue;
    if (std::strstr(info.dli_sname, "basic_json") != nullptr && std::strstr(info.dli_sname, "destroy") != nullptr)
      return true;
  }
  return false;
}

bool fails_now() {
  if (num_until_failure.load(std::memory_order_relaxed) <= 0 || !can_fail()) return false;
  if (num_until_failure.fetch_sub(1) != 1) return false;
  if (is_spared()) {
    num_until_failure.store(1);  // the next one, then
    return false;
  }
  return true;
}

}  // namespace

void* operator new(std::size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (all_fail.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (fails_now()) throw std::bad_alloc();
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
// Weights, caches and scratch of the kernels are mapped. The C library does not come this way.
extern "C" void* mmap(void* address, std::size_t size, int protection, int flags, int file, off_t offset) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel answers with an address
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void quire::test::fail_allocations(bool fails) {
  all_fail.store(fails, std::memory_order_relaxed);
}

void quire::test::fail_next_allocation(std::int64_t num_before, FailsIn where) {
  fails_in.store(where, std::memory_order_relaxed);
  asked_by.store(gettid(), std::memory_order_relaxed);
  num_until_failure.store(num_before + 1, std::memory_order_relaxed);
}

void quire::test::exempt_this_thread() {
  is_exempt = true;
}

quire::test::Fallible::Fallible() {
  is_fallible = true;
}

quire::test::Fallible::~Fallible() {
  is_fallible = false;
}

bool quire::test::forget_failure() {
  return num_until_failure.exchange(0) > 0;
}

std::int64_t quire::test::num_allocations() {
  return count.load(std::memory_order_relaxed);
}
