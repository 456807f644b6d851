// PieceRanges: pieces of work divided into one range of neighbours per thread, so that a thread's next piece follows
// its present one; a finished thread takes from the ends of other ranges. Claims: any thread; divide: one thread, while
// none claims. Invariant: each piece is claimed once.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace quire {

class PieceRanges {
 public:
  explicit PieceRanges(int num_ranges) : ranges_(static_cast<std::size_t>(num_ranges)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(ranges_.size()); }

  void divide(std::int64_t num_pieces) {
    for (std::int64_t i = 0; i < size(); ++i)
      bounds(i).store(pack(num_pieces * i / size(), num_pieces * (i + 1) / size()), std::memory_order_relaxed);
  }

  // The next piece for the thread of this range, -1 where none is left.
  std::int64_t claim(std::int64_t own) {
    const std::int64_t piece = take(bounds(own), true);
    for (std::int64_t i = 1; piece < 0 && i < size(); ++i) {
      const std::int64_t stolen = take(bounds((own + i) % size()), false);
      if (stolen >= 0) return stolen;
    }
    return piece;
  }

 private:
  // Begin and end in one word, so that a claim is one exchange.
  struct alignas(64) Range {
    std::atomic<std::uint64_t> bounds{0};
  };

  static std::uint64_t pack(std::int64_t begin, std::int64_t end) {
    return static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(end);
  }
  std::atomic<std::uint64_t>& bounds(std::int64_t range) { return ranges_[static_cast<std::size_t>(range)].bounds; }

  static std::int64_t take(std::atomic<std::uint64_t>& bounds, bool front) {
    std::uint64_t seen = bounds.load(std::memory_order_relaxed);
    while (true) {
      const auto begin = static_cast<std::int64_t>(seen >> 32);
      const auto end = static_cast<std::int64_t>(seen & 0xffffffffu);
      if (begin >= end) return -1;
      const std::uint64_t left = front ? pack(begin + 1, end) : pack(begin, end - 1);
      if (bounds.compare_exchange_weak(seen, left, std::memory_order_relaxed)) return front ? begin : end - 1;
    }
  }

  std::vector<Range> ranges_;
};

}  // namespace quire
