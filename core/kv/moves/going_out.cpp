#include "core/kv/moves/going_out.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>

namespace quire {

namespace {

constexpr int kMostCleaned = 32;  // cached blocks that a step looks at

}  // namespace

// The record tiers that lack the node, or hold less of it, and can take it without evicting one of `kept`.
std::uint8_t GoingOut::records_to_write(PrefixNode node, std::size_t num_groups,
                                        std::span<const PrefixNode> kept) const {
  std::uint8_t records = 0;
  if (outgoing_.contains(node)) return records;
  const std::int64_t num_bytes = layout_.payload_bytes(num_groups);
  for (const TierSources::Source& source : tiers_.records()) {
    RecordTier& tier = *source.tier;
    if (tier.is_being_written(node) || tiers_.has_record(tier, node, num_groups) || !can_write(tier, num_bytes))
      continue;
    if (tier.makes_room(outgoing_bytes_ + num_bytes, kept)) records |= tiers_.bit_of(source);
  }
  return records;
}

bool GoingOut::is_for_host(PrefixNode node, std::size_t num_groups, std::span<const PrefixNode> kept) const {
  return tiers_.host() != nullptr && !tiers_.is_on_host(node, num_groups) &&
         tiers_.host()->makes_room(layout_.payload_bytes(num_groups) + token_bytes(node), kept);
}

void GoingOut::keep(PrefixNode node, std::span<const PrefixNode> kept) {
  if (!index_.is_full(node)) return;
  const std::size_t num_groups = layout_.worth(node);
  const bool to_host = is_for_host(node, num_groups, kept);
  const std::uint8_t records = records_to_write(node, num_groups, kept);
  if (tiers_.host() != nullptr && tiers_.host()->contains(node)) tiers_.host()->touch(node);
  for (const TierSources::Source& source : tiers_.records()) {
    if (source.tier->contains(node)) source.tier->touch(node);
  }
  if ((!to_host && records == 0) || step_.bytes_out < layout_.block_bytes()) return;
  try {
    move(node, num_groups, to_host, records);
  } catch (const std::bad_alloc&) {  // not kept: it will be computed again
  }
}

// The copy is filled before later work of the step reads it.
void GoingOut::move(PrefixNode node, std::size_t num_groups, bool to_host, std::uint8_t records) {
  const std::int64_t num_bytes = layout_.payload_bytes(num_groups);
  const auto content = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(num_bytes));
  step_.reserve(1);
  index_.reserve_nodes();
  if (records != 0) outgoing_.insert(node);
  step_.bytes_out -= num_bytes;
  step_.moves.push_back({.kind = BlockMove::Kind::kOffload,
                         .node = node,
                         .block = index_.block(node),
                         .extras = layout_.located(node, num_groups),
                         .bytes = content,
                         .unfilled = content.get(),
                         .records = records});
  if (records != 0) {
    outgoing_bytes_ += num_bytes;
    index_.add_user(node);
  }
  if (!to_host) return;
  const auto left = [&](PrefixNode leaving) {
    index_.set_below(leaving, TierKind::kHost, false);
    index_.forget_unused(leaving);
  };
  const bool is_kept = tiers_.host()->put(node, index_.parent(node), num_bytes + token_bytes(node), content, left);
  index_.set_below(node, TierKind::kHost, is_kept);
}

// Copies blocks before they are evicted, so that a prompt that needs many at once need not wait. The copies do not
// evict each other from a tier: that would repeat in every step, and an idle engine would never rest.
void GoingOut::keep_oldest() {
  const BlockPool& pool = kv_.pool();
  if (pool.num_free() > pool.num_blocks() / 8) return;
  std::array<PrefixNode, kMostCleaned> nodes;
  std::size_t num_nodes = 0;
  BlockId block = pool.oldest_cached();
  for (int i = 0; i < kMostCleaned && block != kNoBlock; ++i) {
    if (!pool.is_forgettable(block)) nodes[num_nodes++] = index_.node_of(block);
    block = pool.next_cached(block);
  }
  const std::span<const PrefixNode> oldest = std::span(nodes).first(num_nodes);
  for (std::size_t i = 0; i < num_nodes && step_.bytes_out >= 2 * layout_.block_bytes(); ++i)
    keep(oldest[i], oldest);
}

bool GoingOut::keep_next(std::int64_t num_blocks) {
  const std::int64_t end = std::min(next_to_persist_ + num_blocks, kv_.pool().num_blocks());
  for (; next_to_persist_ < end && step_.bytes_out >= layout_.block_bytes() && has_disk_room(); ++next_to_persist_) {
    const PrefixNode node = index_.node_of(BlockId{static_cast<std::int32_t>(next_to_persist_)});
    if (node != kNoNode) keep(node);
  }
  if (next_to_persist_ < kv_.pool().num_blocks()) return true;
  next_to_persist_ = 0;
  return false;
}

void GoingOut::finish(const BlockMove& move) {
  outgoing_.erase(move.node);
  outgoing_bytes_ -= std::ssize(*move.bytes);
  for (const TierSources::Source& source : tiers_.records()) {
    if ((move.records & tiers_.bit_of(source)) != 0) source.tier->put(index_, move.node, move.bytes);
  }
  index_.drop_user(move.node);
  index_.forget_unused(move.node);
}

}  // namespace quire
