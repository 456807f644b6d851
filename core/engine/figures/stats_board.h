// StatsBoard: the latest EngineStats, written by the engine thread and read by Any thread without a lock.
// Each figure is written whole; a reader may see two figures of neighbouring steps.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/engine/figures/engine_stats.h"

namespace quire {

class StatsBoard {
 public:
  void publish(const EngineStats& stats) {
    const auto words = std::bit_cast<Words>(stats);
    for (std::size_t i = 0; i < words.size(); ++i)
      words_[i].store(words[i], std::memory_order_relaxed);
  }

  EngineStats read() const {
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = words_[i].load(std::memory_order_relaxed);
    return std::bit_cast<EngineStats>(words);
  }

 private:
  using Words = std::array<std::uint64_t, sizeof(EngineStats) / sizeof(std::uint64_t)>;
  static_assert(sizeof(Words) == sizeof(EngineStats), "every figure is one 64-bit word");
  std::array<std::atomic<std::uint64_t>, sizeof(EngineStats) / sizeof(std::uint64_t)> words_{};
};

}  // namespace quire
