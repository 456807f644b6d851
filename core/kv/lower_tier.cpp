#include "core/kv/lower_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire {

namespace {

constexpr double kNewest = 0.2;    // of the newest measurement
constexpr double kRefused = 0.99;  // what is left of a price each time that it was too high

std::size_t index(BlockId block) {
  return static_cast<std::size_t>(block.value);
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void follow(double& average, double value) {
  average = average == 0.0 ? value : average + kNewest * (value - average);
}

// The records that follow each other from the prompt's beginning.
template <class Tier>
std::vector<TierId> records_of(Tier& tier, const std::string& salt, std::span<const TokenId> tokens,
                               std::size_t block_size) {
  std::vector<TierId> records;
  for (std::size_t begin = 0; begin + block_size <= tokens.size(); begin += block_size) {
    const TierId parent = records.empty() ? kNoTierId : records.back();
    const TierId found = tier.find(parent, salt, tokens.subspan(begin, block_size));
    if (found == kNoTierId) break;
    records.push_back(found);
  }
  return records;
}

}  // namespace

LowerTier::LowerTier(KvCache& kv, KvStorage& storage, HostTier* host, DiskTier* disk)
    : kv_(kv),
      storage_(storage),
      host_(host),
      disk_(disk),
      host_ids_(static_cast<std::size_t>(kv.pool().num_blocks()), kNoTierId),
      disk_ids_(host_ids_),
      buffer_(storage.block_bytes()) {
  kv_.set_eviction_listener(this);
}

LowerTier::~LowerTier() {
  kv_.set_eviction_listener(nullptr);
}

std::int64_t LowerTier::restore_from_host(const std::string& salt, std::span<const TokenId> tokens, std::int64_t limit,
                                          double compute_seconds) {
  if (host_ == nullptr || host_->num_blocks() == 0) return 0;
  if (compute_seconds > 0.0 && copy_in_seconds_ > compute_seconds * kv_.block_size()) {
    if (measures_) copy_in_seconds_ *= kRefused;
    return 0;
  }
  const std::vector<TierId> records = records_of(*host_, salt, tokens.first(static_cast<std::size_t>(limit)),
                                                 static_cast<std::size_t>(kv_.block_size()));
  const std::int64_t first = num_cached_blocks(salt, tokens, limit);
  const auto end = static_cast<std::int64_t>(records.size());
  if (end <= first) return 0;
  // What is put back pushes other blocks out, into this same tier: the contents are taken out of it first.
  std::vector<std::vector<std::byte>> payloads;
  for (std::int64_t i = first; i < end; ++i) {
    payloads.push_back(host_->payload(records[static_cast<std::size_t>(i)]));
  }
  const auto began = std::chrono::steady_clock::now();
  const std::int64_t num_blocks = install(
      salt, tokens, first, end,
      [&](std::int64_t i) { return std::span(std::as_const(payloads[static_cast<std::size_t>(i - first)])); },
      host_ids_, records);
  if (num_blocks > 0 && measures_) follow(copy_in_seconds_, seconds_since(began) / static_cast<double>(num_blocks));
  return num_blocks;
}

std::optional<std::uint64_t> LowerTier::begin_restore(const std::string& salt, std::span<const TokenId> prompt,
                                                      double compute_seconds) {
  if (disk_ == nullptr) return std::nullopt;
  if (!disk_->is_loaded()) {
    const std::uint64_t number = disk_->fetch({});
    pending_.emplace(number, Pending{0, {}});
    return number;
  }
  const double compute = compute_seconds * kv_.block_size();
  if (compute > 0.0 && read_seconds_ > compute) {
    read_seconds_ *= kRefused;
    return std::nullopt;
  }
  const auto limit = static_cast<std::int64_t>(prompt.size()) - 1;
  const std::int64_t num_cached = num_cached_blocks(salt, prompt, limit);
  std::vector<TierId> missing = records_of(*disk_, salt, prompt.first(static_cast<std::size_t>(limit)),
                                           static_cast<std::size_t>(kv_.block_size()));
  if (std::cmp_less_equal(missing.size(), num_cached)) return std::nullopt;
  missing.erase(missing.begin(), missing.begin() + num_cached);
  const std::uint64_t number = disk_->fetch(missing);
  pending_.emplace(number, Pending{num_cached, std::move(missing)});
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
  follow(read_seconds_, fetched.seconds / static_cast<double>(num_fetched));
  const std::int64_t first = pending.first_block;
  return install(
      salt, prompt, first, first + num_fetched,
      [&](std::int64_t i) { return std::span(fetched.payloads[static_cast<std::size_t>(i - first)]); }, disk_ids_,
      // Numbered from the prompt's beginning, as `first` and `end` are.
      [&] {
        std::vector<TierId> records(static_cast<std::size_t>(first), kNoTierId);
        records.insert(records.end(), pending.records.begin(), pending.records.end());
        return records;
      }());
}

std::int64_t LowerTier::install(const std::string& salt, std::span<const TokenId> tokens, std::int64_t first,
                                std::int64_t end, const Payload& payload, Ids& ids, std::span<const TierId> records) {
  const std::int64_t num_tokens = end * kv_.block_size();
  BlockTable table;
  kv_.open(table, salt);
  // More of it may be cached by now than when it was looked up, or less.
  const PrefixMatch match = kv_.match(table, tokens, num_tokens);
  PrefixMatch whole_blocks = match;
  whole_blocks.partial_block = kNoBlock;
  whole_blocks.num_partial_tokens = 0;
  std::vector<BlockCopy> copies;
  std::int64_t num_installed = 0;
  if (match.num_blocks >= first && match.num_blocks < end && kv_.admit(table, whole_blocks, num_tokens, copies)) {
    for (std::int64_t i = match.num_blocks; i < end; ++i, ++num_installed) {
      const BlockId block = table.blocks[static_cast<std::size_t>(i)];
      storage_.write_block(block.value, payload(i));
      ids[index(block)] = records[static_cast<std::size_t>(i)];
    }
    kv_.commit(table, tokens, num_tokens);
    kv_.release(table, tokens, num_tokens);
  }
  kv_.close(table);
  return num_installed;
}

std::int64_t LowerTier::num_cached_blocks(const std::string& salt, std::span<const TokenId> tokens,
                                          std::int64_t limit) {
  BlockTable probe;
  kv_.open(probe, salt);
  const std::int64_t num_blocks = kv_.match(probe, tokens, limit).num_blocks;
  kv_.close(probe);
  return num_blocks;
}

std::optional<double> LowerTier::swap_seconds() const {
  if (host_ == nullptr) return std::nullopt;
  return copy_out_seconds_ + copy_in_seconds_;
}

void LowerTier::set_swap_seconds(double of_block) {
  copy_in_seconds_ = copy_out_seconds_ = of_block / 2.0;
  measures_ = false;
}

bool LowerTier::persist_some(std::int64_t num_blocks) {
  if (disk_ == nullptr) return false;
  const std::int64_t end = std::min(next_to_persist_ + num_blocks, kv_.pool().num_blocks());
  for (; next_to_persist_ < end; ++next_to_persist_) {
    const BlockId block{static_cast<std::int32_t>(next_to_persist_)};
    if (kv_.index().num_tokens(block) == kv_.block_size()) persist(*disk_, disk_ids_, block, nullptr);
  }
  if (end < kv_.pool().num_blocks()) return true;
  next_to_persist_ = 0;
  return false;
}

void LowerTier::persist_all() {
  if (disk_ == nullptr) return;
  for (std::int64_t i = 0; i < kv_.pool().num_blocks(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    if (kv_.index().num_tokens(block) != kv_.block_size()) continue;
    persist(*disk_, disk_ids_, block, [this] { disk_->wait_idle(); });
  }
  disk_->wait_idle();
}

void LowerTier::before_eviction(BlockId block, WhenEvicted what) {
  if (what == WhenEvicted::kForgotten) {
    if (measures_) copy_out_seconds_ *= kRefused;
  } else if (kv_.index().num_tokens(block) == kv_.block_size()) {
    if (host_ != nullptr) {
      const auto began = std::chrono::steady_clock::now();
      const std::int64_t num_copied = persist(*host_, host_ids_, block, nullptr);
      if (num_copied > 0 && measures_)
        follow(copy_out_seconds_, seconds_since(began) / static_cast<double>(num_copied));
    }
    if (disk_ != nullptr) persist(*disk_, disk_ids_, block, nullptr);
  }
  host_ids_[index(block)] = kNoTierId;
  disk_ids_[index(block)] = kNoTierId;
}

// A record needs that of the block before it, which is in the pool as long as this one is.
template <class Tier>
std::int64_t LowerTier::persist(Tier& tier, Ids& ids, BlockId block, const std::function<void()>& when_full) {
  std::int64_t num_offered = 0;
  std::vector<BlockId> path;
  const auto is_there = [&](BlockId each) { return ids[index(each)] != kNoTierId && tier.contains(ids[index(each)]); };
  for (BlockId each = block; each != kNoBlock && !is_there(each); each = kv_.index().parent_block(each)) {
    path.push_back(each);
  }
  for (; !path.empty(); path.pop_back()) {
    const BlockId next = path.back();
    const BlockId before = kv_.index().parent_block(next);
    const TierId parent = before == kNoBlock ? kNoTierId : ids[index(before)];
    TierId id = offer(tier, next, parent);
    if (id == kNoTierId && when_full) {
      when_full();
      id = offer(tier, next, parent);
    }
    ids[index(next)] = id;
    if (id == kNoTierId) break;
    ++num_offered;
  }
  return num_offered;
}

template <class Tier>
TierId LowerTier::offer(Tier& tier, BlockId block, TierId parent) {
  const std::string& salt = kv_.index().salt_of(node_of(block));
  const std::span<const TokenId> tokens = kv_.index().tokens(block);
  const TierId known = tier.find(parent, salt, tokens);
  if (known != kNoTierId) return known;
  storage_.read_block(block.value, buffer_);
  return tier.offer(parent, salt, tokens, buffer_);
}

}  // namespace quire
