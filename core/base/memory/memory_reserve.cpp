#include "core/base/memory/sure_memory.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace quire {

namespace {

// More than the C library requests at once if the heap cannot grow in place.
constexpr std::size_t kSmallPiece = std::size_t{2} << 20;
constexpr std::size_t kNumPieces = 4;
constexpr std::size_t kSmallBytes = 4096;

// The handler of operator new has no argument, so its state belongs to the process.
std::array<std::atomic<void*>, kNumPieces> pieces{};

bool give_piece(std::size_t index) {
  void* const taken = pieces[index].exchange(nullptr);
  if (taken != nullptr) ::munmap(taken, kSmallPiece);
  return taken != nullptr;
}

bool give_small_piece() {
  bool is_given = false;
  for (std::size_t i = 0; i < kNumPieces && !is_given; ++i)
    is_given = give_piece(i);
  return is_given;
}

// Returns if another try may succeed. A block that is refused while small ones are available was a large one.
void on_refusal() {
  void* volatile probe = std::malloc(kSmallBytes);
  const bool has_small = probe != nullptr;
  std::free(probe);
  if (has_small || !give_small_piece()) throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve() {
  keep_sure_memory();
  refill();
  std::set_new_handler(&on_refusal);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  for (std::size_t i = 0; i < kNumPieces; ++i)
    give_piece(i);
}

void MemoryReserve::refill() noexcept {
  for (std::size_t i = kNumPieces; i-- > 0;) {
    if (pieces[i].load() != nullptr) continue;
    void* const pages = ::mmap(nullptr, kSmallPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return;
    void* expected = nullptr;
    if (!pieces[i].compare_exchange_strong(expected, pages)) ::munmap(pages, kSmallPiece);
  }
}

}  // namespace quire
