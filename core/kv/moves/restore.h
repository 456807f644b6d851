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
  double compute_seconds;  // of a token; 0: not known, or it is fetched at any price
  Clock::time_point give_up;
  Clock::time_point began{};
  std::int64_t num_blocks = 0;  // of the prompt; 0: not known before the disk is loaded, or the store has answered
  std::uint64_t look_up = 0;    // that the store was asked and has not answered; 0: none
  std::int64_t first_looked_up = 0;
  BlockTable held{};                   // the blocks that have come, so that they stay until the rest has
  std::int64_t num_copied = 0;         // blocks held that were not in the pool
  std::int64_t num_copied_before = 0;  // those of them that came before its patience began
  bool is_priced = true;               // it is known what computing takes

  // The node of block number `index` below `node`; kNoNode where there is none.
  PrefixNode child(const KvCache& kv, PrefixNode node, std::int64_t index) const {
    const auto block_size = static_cast<std::size_t>(kv.block_size());
    return kv.index().find(node, kv.key_at(*table, tokens, index),
                           tokens.subspan(static_cast<std::size_t>(index) * block_size, block_size));
  }
};

using Restores = std::list<Restore>;

}  // namespace quire
