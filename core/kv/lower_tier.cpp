#include "core/kv/lower_tier.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace {

constexpr double kFirstReadSeconds = 1e-3;  // of a block, until one was read
constexpr double kWeight = 0.2;             // of the newest measurement

std::size_t index(BlockId block) {
  return static_cast<std::size_t>(block.value);
}

}  // namespace

LowerTier::LowerTier(KvCache& kv, KvStorage& storage, DiskTier& disk)
    : kv_(kv),
      storage_(storage),
      disk_(disk),
      ids_(static_cast<std::size_t>(kv.pool().num_blocks()), kNoTierId),
      buffer_(storage.block_bytes()),
      read_seconds_(kFirstReadSeconds) {
  kv_.set_eviction_listener(this);
}

LowerTier::~LowerTier() {
  kv_.set_eviction_listener(nullptr);
}

std::optional<std::uint64_t> LowerTier::begin_restore(const std::string& salt, std::span<const TokenId> prompt,
                                                      double compute_seconds) {
  if (!disk_.is_loaded()) {
    const std::uint64_t number = disk_.fetch({});
    pending_.emplace(number, Pending{0, {}});
    return number;
  }
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  BlockTable probe;
  kv_.open(probe, salt);
  const auto num_cached =
      static_cast<std::size_t>(kv_.match(probe, prompt, static_cast<std::int64_t>(prompt.size()) - 1).num_blocks);
  kv_.close(probe);
  std::vector<TierId> missing;
  TierId parent = kNoTierId;
  for (std::size_t i = 0; (i + 1) * block_size < prompt.size(); ++i) {
    parent = disk_.find(parent, salt, prompt.subspan(i * block_size, block_size));
    if (parent == kNoTierId) break;
    if (i >= num_cached) missing.push_back(parent);
  }
  if (missing.empty()) return std::nullopt;
  const double compute = compute_seconds * static_cast<double>(block_size);
  if (compute > 0.0 && read_seconds_ > compute) return std::nullopt;
  const std::uint64_t number = disk_.fetch(missing);
  pending_.emplace(number, Pending{static_cast<std::int64_t>(num_cached), std::move(missing)});
  return number;
}

std::optional<std::int64_t> LowerTier::finish_restore(const std::string& salt, std::span<const TokenId> prompt,
                                                      const DiskTier::Fetched& fetched) {
  const Pending pending = std::move(pending_.extract(fetched.number).mapped());
  if (pending.records.empty()) return std::nullopt;
  const auto is_whole = [&](const auto& payload) { return payload.size() == storage_.block_bytes(); };
  const auto num_fetched =
      std::find_if_not(fetched.payloads.begin(), fetched.payloads.end(), is_whole) - fetched.payloads.begin();
  if (num_fetched == 0) return 0;
  read_seconds_ += kWeight * (fetched.seconds / static_cast<double>(num_fetched) - read_seconds_);
  const std::int64_t block_size = kv_.block_size();
  BlockTable table;
  kv_.open(table, salt);
  PrefixMatch match = kv_.match(table, prompt, static_cast<std::int64_t>(prompt.size()) - 1);
  match.partial_block = kNoBlock;
  match.num_partial_tokens = 0;
  // The chain of records says where the first of them belongs; more may be cached by now, or less.
  const std::int64_t end = pending.first_block + num_fetched;
  std::vector<BlockCopy> copies;
  std::int64_t num_restored = 0;
  if (match.num_blocks >= pending.first_block && match.num_blocks < end &&
      kv_.admit(table, match, end * block_size, copies)) {
    for (std::int64_t i = match.num_blocks; i < end; ++i, ++num_restored) {
      const BlockId block = table.blocks[static_cast<std::size_t>(i)];
      const auto fetched_at = static_cast<std::size_t>(i - pending.first_block);
      storage_.write_block(block.value, fetched.payloads[fetched_at]);
      ids_[index(block)] = pending.records[fetched_at];
    }
    kv_.commit(table, prompt, end * block_size);
    kv_.release(table, prompt, end * block_size);
  }
  kv_.close(table);
  return num_restored;
}

void LowerTier::persist_all(bool wait) {
  for (std::int64_t i = 0; i < kv_.pool().num_blocks(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    if (kv_.index().num_tokens(block) == kv_.block_size()) persist(block, wait);
  }
  if (wait) disk_.wait_idle();
}

void LowerTier::before_eviction(BlockId block) {
  if (kv_.index().num_tokens(block) == kv_.block_size()) persist(block, false);
  ids_[index(block)] = kNoTierId;
}

bool LowerTier::is_persisted(BlockId block) const {
  return ids_[index(block)] != kNoTierId && disk_.contains(ids_[index(block)]);
}

// A record needs that of the block before it, which is in the pool as long as this one is.
bool LowerTier::persist(BlockId block, bool wait) {
  std::vector<BlockId> path;
  for (BlockId each = block; each != kNoBlock && !is_persisted(each); each = kv_.index().parent_block(each)) {
    path.push_back(each);
  }
  for (; !path.empty(); path.pop_back()) {
    const BlockId next = path.back();
    const BlockId before = kv_.index().parent_block(next);
    const TierId parent = before == kNoBlock ? kNoTierId : ids_[index(before)];
    TierId id = offer(next, parent);
    if (id == kNoTierId && wait) {
      disk_.wait_idle();
      id = offer(next, parent);
    }
    ids_[index(next)] = id;
    if (id == kNoTierId) return false;
  }
  return true;
}

TierId LowerTier::offer(BlockId block, TierId parent) {
  const std::string& salt = kv_.index().salt_of(node_of(block));
  const std::span<const TokenId> tokens = kv_.index().tokens(block);
  const TierId known = disk_.find(parent, salt, tokens);
  if (known != kNoTierId) return known;
  storage_.read_block(block.value, buffer_);
  return disk_.offer(parent, salt, tokens, buffer_);
}

}  // namespace quire
