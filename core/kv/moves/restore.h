// Restore: one table whose prefix the tiers bring back, as far as it has come. Engine thread only; a plain record.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <span>

#include "core/kv/kv_cache.h"

namespace quire {

struct Restore {
  using Clock = std::chrono::steady_clock;

  std::uint64_t id;
  BlockTable* table;
  std::span<const TokenId> tokens;
  std::int64_t limit;
  double compute_seconds;  // cost of one token; 0: unknown, or any price is accepted
  Clock::time_point give_up;
  Clock::time_point began{};
  std::int64_t num_blocks = 0;  // prompt blocks; 0: unknown until disk or store have answered
  std::uint64_t look_up = 0;    // pending request to the store; 0: none
  std::int64_t first_looked_up = 0;
  BlockTable held{};                   // blocks loaded so far, kept until the rest arrives
  std::int64_t num_copied = 0;         // blocks held that were not in the pool
  std::int64_t num_copied_before = 0;  // blocks copied before its patience began
  bool is_priced = true;               // the cost of computing is known

  // The node of block number `index` below `node`; kNoNode where there is none.
  PrefixNode child(const KvCache& kv, PrefixNode node, std::int64_t index) const {
    const auto block_size = static_cast<std::size_t>(kv.block_size());
    return kv.index().find(node, kv.key_at(*table, tokens, index),
                           tokens.subspan(static_cast<std::size_t>(index) * block_size, block_size));
  }
};

using Restores = std::list<Restore>;

}  // namespace quire
