// LowerTier: what is kept below as it leaves the pool, or before it does.
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "core/kv/lower_tier.h"

namespace quire {

namespace {

constexpr double kForgottenPrice = 0.99;  // what is left of a price each time that it was too high
constexpr int kMostCleaned = 32;          // cached blocks that a step looks at

}  // namespace

void LowerTier::reserve_moves(std::size_t count) {
  if (moves_.capacity() < moves_.size() + count) moves_.reserve(2 * moves_.size() + count);
}

void LowerTier::before_eviction(PrefixNode node, WhenEvicted what) {
  if (what == WhenEvicted::kForgotten) {
    if (measures_) offload_seconds_ *= kForgottenPrice;
  } else {
    keep_below(node);
  }
}

// The record tiers that lack the node, or have it with less, and take it without pushing out first what is `kept`.
std::uint8_t LowerTier::records_to_write(PrefixNode node, std::size_t num_groups,
                                         std::span<const PrefixNode> kept) const {
  std::uint8_t records = 0;
  if (outgoing_.contains(node)) return records;
  for (const Source& source : sources_) {
    RecordTier& tier = *source.tier;
    const bool is_on_its_way = tier.contains(node) && !tier.is_readable(node);
    const std::int64_t num_bytes = layout_.payload_bytes(num_groups);
    if (is_on_its_way || has_record(tier, node, num_groups) || !can_write(tier, num_bytes)) continue;
    if (tier.makes_room(outgoing_bytes_ + num_bytes, kept)) records |= bit_of(source);
  }
  return records;
}

bool LowerTier::is_for_host(PrefixNode node, std::size_t num_groups, std::span<const PrefixNode> kept) const {
  return host_ != nullptr && !is_on_host(node, num_groups) &&
         host_->makes_room(layout_.payload_bytes(num_groups) + token_bytes(node), kept);
}

// In the tiers that do not have it yet, or have it with less, as far as a step's share allows. A tier that
// would have to push out one of `kept` first does without it.
void LowerTier::keep_below(PrefixNode node, std::span<const PrefixNode> kept) {
  if (!index_.is_full(node)) return;
  const std::size_t num_groups = layout_.worth(node);
  const bool to_host = is_for_host(node, num_groups, kept);
  const std::uint8_t records = records_to_write(node, num_groups, kept);
  if (host_ != nullptr && host_->contains(node)) host_->touch(node);
  for (const Source& source : sources_) {
    if (source.tier->contains(node)) source.tier->touch(node);
  }
  if ((!to_host && records == 0) || bytes_out_ < block_bytes()) return;
  try {
    move_out(node, num_groups, to_host, records);
  } catch (const std::bad_alloc&) {  // it is not kept, but recomputed
  }
}

// One copy for all. It is filled before anything that comes after it in the step reads it.
void LowerTier::move_out(PrefixNode node, std::size_t num_groups, bool to_host, std::uint8_t records) {
  const std::int64_t num_bytes = layout_.payload_bytes(num_groups);
  const auto content = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(num_bytes));
  reserve_moves(1);
  index_.reserve_nodes();
  if (records != 0) outgoing_.insert(node);
  bytes_out_ -= num_bytes;
  moves_.push_back({.kind = BlockMove::Kind::kOffload,
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
  const bool is_kept = host_->put(node, index_.parent(node), num_bytes + token_bytes(node), content, left);
  index_.set_below(node, TierKind::kHost, is_kept);
}

// Where room will soon be needed, what leaves next is kept below before it is asked for: a prompt that needs many
// blocks at once finds them clean. They do not push each other out: that would go on in every step, and an idle engine
// would never come to rest.
void LowerTier::clean_oldest() {
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
  for (std::size_t i = 0; i < num_nodes && bytes_out_ >= 2 * block_bytes(); ++i)
    keep_below(oldest[i], oldest);
}

}  // namespace quire
