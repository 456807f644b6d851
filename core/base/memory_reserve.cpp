#include "core/base/memory_reserve.h"

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
// Released first, at any refusal: destroying a large JSON tree takes memory, and must not fail.
constexpr std::size_t kLargePiece = std::size_t{32} << 20;
constexpr std::size_t kNumPieces = 5;
constexpr std::size_t kSmallBytes = 4096;

// The handler of operator new has no argument, so its state belongs to the process.
std::array<std::atomic<void*>, kNumPieces> pieces{};

std::size_t bytes_of(std::size_t index) {
  return index == 0 ? kLargePiece : kSmallPiece;
}

bool give_piece(std::size_t index) {
  void* const taken = pieces[index].exchange(nullptr);
  if (taken != nullptr) ::munmap(taken, bytes_of(index));
  return taken != nullptr;
}

bool give_small_piece() {
  bool is_given = false;
  for (std::size_t i = 1; i < kNumPieces && !is_given; ++i)
    is_given = give_piece(i);
  return is_given;
}

// Returns if another try may succeed. A block that is refused while small ones are available was a large one.
void on_refusal() {
  if (give_piece(0)) return;
  void* volatile probe = std::malloc(kSmallBytes);
  const bool has_small = probe != nullptr;
  std::free(probe);
  if (has_small || !give_small_piece()) throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve() {
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
    void* const pages = ::mmap(nullptr, bytes_of(i), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return;
    void* expected = nullptr;
    if (!pieces[i].compare_exchange_strong(expected, pages)) ::munmap(pages, bytes_of(i));
  }
}

}  // namespace quire
