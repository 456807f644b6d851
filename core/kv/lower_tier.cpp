#include "core/kv/lower_tier.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace quire {

namespace {

constexpr double kNewest = 0.2;    // of the newest measurement
constexpr double kRefused = 0.99;  // what is left of a price each time that it was too high
// A restore that takes longer than computing would, and than this, is given up.
constexpr std::chrono::milliseconds kLeastPatience{100};
constexpr std::chrono::milliseconds kPatience{2'000};  // where it is not known what computing takes
constexpr int kMostCleaned = 32;                       // cached blocks that a step looks at

double seconds_since(LowerTier::Clock::time_point began) {
  return std::chrono::duration<double>(LowerTier::Clock::now() - began).count();
}

void follow(double& average, double value) {
  average = average == 0.0 ? value : average + kNewest * (value - average);
}

LowerTier::Clock::duration patience(double compute_seconds, std::int64_t num_tokens) {
  if (compute_seconds <= 0.0) return kPatience;
  const std::chrono::duration<double> computing(compute_seconds * static_cast<double>(num_tokens));
  return std::max<LowerTier::Clock::duration>(kLeastPatience,
                                              std::chrono::duration_cast<LowerTier::Clock::duration>(computing));
}

}  // namespace

LowerTier::LowerTier(KvCache& kv, KvStorage& storage, HostTier* host, DiskTier* disk, const LowerTierOptions& options)
    : kv_(kv),
      storage_(storage),
      index_(kv.mutable_index()),
      host_(host),
      disk_(disk),
      options_(options),
      block_bytes_(static_cast<std::int64_t>(storage.block_bytes())),
      bytes_out_(std::max(options.max_bytes_per_step, block_bytes_)) {
  kv_.set_listener(this);
}

LowerTier::~LowerTier() {
  while (!restores_.empty())
    finish(restores_.begin());
  kv_.set_listener(nullptr);
}

bool LowerTier::restore(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
                        Clock::time_point now) {
  if (table.is_restoring) return true;
  Restore restore{.id = next_restore_,
                  .table = &table,
                  .tokens = tokens,
                  .limit = limit,
                  .compute_seconds = compute_seconds,
                  .give_up = now + patience(compute_seconds, limit)};
  if (disk_ == nullptr || disk_->is_loaded()) {
    restore.num_blocks = num_blocks_to_restore(restore);
    if (restore.num_blocks == 0) return false;
  }
  ++next_restore_;
  table.is_restoring = true;
  kv_.open(restore.held, table);
  restores_.push_back(std::move(restore));
  is_moving_ = true;
  return true;
}

PrefixNode LowerTier::child(const Restore& restore, PrefixNode node, std::int64_t index) const {
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  return index_.find(node, kv_.key_at(*restore.table, restore.tokens, index),
                     restore.tokens.subspan(static_cast<std::size_t>(index) * block_size, block_size));
}

// As far as the prompt is in the pool or in a tier that is cheaper than computing; 0 where all of that is in the pool.
std::int64_t LowerTier::num_blocks_to_restore(const Restore& restore) {
  const double compute = restore.compute_seconds * kv_.block_size();
  const bool refuses_host = compute > 0.0 && copy_in_seconds_ > compute;
  const bool refuses_disk = compute > 0.0 && read_seconds_ > compute;
  if (refuses_host && measures_) copy_in_seconds_ *= kRefused;
  if (refuses_disk) read_seconds_ *= kRefused;
  PrefixNode node = restore.table->root;
  std::int64_t num_below = 0;
  std::int64_t index = 0;
  for (; (index + 1) * kv_.block_size() <= restore.limit; ++index) {
    node = child(restore, node, index);
    if (node == kNoNode) break;
    if (index_.block(node) != kNoBlock) continue;
    const bool is_on_host = host_ != nullptr && !refuses_host && host_->contains(node);
    const bool is_on_disk = disk_ != nullptr && !refuses_disk && disk_->is_readable(node);
    if (!is_on_host && !is_on_disk) break;
    ++num_below;
  }
  return num_below > 0 ? index : 0;
}

void LowerTier::begin_step(Clock::time_point now) {
  bytes_in_ = bytes_out_ = std::max(options_.max_bytes_per_step, block_bytes_);
  is_moving_ = false;
  if (disk_ != nullptr) receive();
  for (auto restore = restores_.begin(); restore != restores_.end();) {
    bool has_ended = now >= restore->give_up;
    if (has_ended) refuse_disk(*restore);
    if (!has_ended && restore->num_blocks == 0 && disk_->is_loaded()) {
      restore->num_blocks = num_blocks_to_restore(*restore);
      has_ended = restore->num_blocks == 0;
    }
    if (!has_ended && restore->num_blocks > 0) has_ended = advance(*restore);
    restore = has_ended ? finish(restore) : std::next(restore);
  }
  drop_unwanted();
  clean_oldest();
}

// The disk does not get on: for a while nothing more is asked of it.
void LowerTier::refuse_disk(const Restore& restore) {
  if (!reading_.empty()) read_seconds_ = 2.0 * std::max(read_seconds_, restore.compute_seconds * kv_.block_size());
}

void LowerTier::receive() {
  received_.clear();
  is_moving_ = disk_->receive(index_, received_);
  for (DiskTier::Arrived& each : received_) {
    const std::uint64_t restore = reading_.extract(each.node).mapped();
    const bool is_whole = each.payload != nullptr && std::cmp_equal(each.payload->size(), block_bytes_);
    if (!is_whole) continue;
    follow(read_seconds_, each.seconds);
    index_.add_user(each.node);
    arrived_.emplace(each.node, Waiting{std::move(each.payload), restore});
  }
}

// True where the restore has ended.
bool LowerTier::advance(Restore& restore) {
  while (restore.held.num_entered < restore.num_blocks) {
    const PrefixNode node = child(restore, restore.held.node, restore.held.num_entered);
    if (node == kNoNode) return true;
    if (index_.block(node) != kNoBlock) {
      kv_.take(restore.held, node);
      continue;
    }
    const BlockPayload payload = payload_of(node);
    if (payload == nullptr) return !read_ahead(restore);
    if (!may_hold_more(restore)) return false;
    if (bytes_in_ < block_bytes_) {
      is_moving_ = true;
      return false;
    }
    if (!copy_in(restore, node, payload)) return true;
  }
  return true;
}

// What is held to be handed over is not there for those who run: beside the first restore, a quarter of the pool.
bool LowerTier::may_hold_more(const Restore& restore) const {
  if (&restore == &restores_.front()) return true;
  return (restore.num_copied + 1) * 4 * std::ssize(restores_) <= kv_.pool().num_blocks();
}

BlockPayload LowerTier::payload_of(PrefixNode node) const {
  if (host_ != nullptr && host_->contains(node)) return host_->payload(node);
  const auto arrived = arrived_.find(node);
  return arrived != arrived_.end() ? arrived->second.payload : nullptr;
}

// False without room: some is left to those who run.
bool LowerTier::copy_in(Restore& restore, PrefixNode node, const BlockPayload& payload) {
  if (kv_.pool().num_available() <= kv_.pool().num_blocks() / 16) return false;
  const auto began = Clock::now();
  const bool from_host = host_ != nullptr && host_->contains(node);
  const KvCache::Taken taken = kv_.take(restore.held, node);
  if (taken.block == kNoBlock) return false;
  storage_.write_block(taken.block.value, *payload);
  bytes_in_ -= block_bytes_;
  ++restore.num_copied;
  ++num_restored_;
  if (from_host && measures_) follow(copy_in_seconds_, seconds_since(began));
  if (arrived_.erase(node) > 0) index_.drop_user(node);
  return true;
}

// Asks the disk for what comes next, as far as it may be in flight. False where the very next is not to be had.
bool LowerTier::read_ahead(const Restore& restore) {
  if (disk_ == nullptr) return false;
  const PrefixNode next = child(restore, restore.held.node, restore.held.num_entered);
  PrefixNode node = next;
  for (std::int64_t index = restore.held.num_entered; node != kNoNode;) {
    const bool is_to_be_read = index_.block(node) == kNoBlock && payload_of(node) == nullptr &&
                               disk_->is_readable(node) && !reading_.contains(node);
    if (is_to_be_read) {
      const std::int64_t in_flight = num_bytes_in_flight();
      if (in_flight > 0 && in_flight + block_bytes_ > options_.max_bytes_in_flight) break;
      disk_->read(index_, node);
      disk_->touch(node);
      reading_.emplace(node, restore.id);
    }
    if (++index >= restore.num_blocks) break;
    node = child(restore, node, index);
  }
  return reading_.contains(next) || disk_->is_readable(next);
}

std::int64_t LowerTier::num_bytes_in_flight() const {
  return static_cast<std::int64_t>(reading_.size() + arrived_.size()) * block_bytes_;
}

LowerTier::Restores::iterator LowerTier::finish(Restores::iterator restore) {
  restore->table->is_restoring = false;
  kv_.release(restore->held, restore->tokens, std::int64_t{restore->held.num_entered} * kv_.block_size());
  kv_.close(restore->held);
  return restores_.erase(restore);
}

// What arrived for a restore that has ended is let go of; another one that needs it asks again.
void LowerTier::drop_unwanted() {
  for (auto each = arrived_.begin(); each != arrived_.end();) {
    const bool is_wanted = std::any_of(restores_.begin(), restores_.end(),
                                       [&](const Restore& restore) { return restore.id == each->second.restore; });
    if (is_wanted) {
      ++each;
      continue;
    }
    const PrefixNode node = each->first;
    each = arrived_.erase(each);
    index_.drop_user(node);
    index_.forget_unused(node);
  }
}

std::optional<LowerTier::Clock::time_point> LowerTier::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Restore& restore : restores_)
    next = std::min(next.value_or(restore.give_up), restore.give_up);
  return next;
}

std::optional<double> LowerTier::swap_seconds() const {
  if (host_ == nullptr) return std::nullopt;
  return copy_out_seconds_ + copy_in_seconds_;
}

void LowerTier::set_swap_seconds(double of_block) {
  copy_in_seconds_ = copy_out_seconds_ = of_block / 2.0;
  measures_ = false;
}

void LowerTier::before_eviction(PrefixNode node, WhenEvicted what) {
  if (what == WhenEvicted::kForgotten) {
    if (measures_) copy_out_seconds_ *= kRefused;
  } else {
    keep_below(node);
  }
}

// In the tiers that do not have it yet, as far as a step's share allows: one copy for both.
void LowerTier::keep_below(PrefixNode node) {
  if (!index_.is_full(node)) return;
  const bool to_host = host_ != nullptr && !host_->contains(node);
  const bool to_disk = disk_ != nullptr && !disk_->contains(node) && disk_->can_take(block_bytes_);
  if (host_ != nullptr && !to_host) host_->touch(node);
  if (disk_ != nullptr && disk_->contains(node)) disk_->touch(node);
  if ((!to_host && !to_disk) || bytes_out_ < block_bytes_) return;
  bytes_out_ -= block_bytes_;
  const auto began = Clock::now();
  auto content = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(block_bytes_));
  storage_.read_block(index_.block(node).value, *content);
  const auto left = [&](PrefixNode leaving) {
    index_.set_below(leaving, TierKind::kHost, false);
    index_.forget_unused(leaving);
  };
  const auto token_bytes = static_cast<std::int64_t>(index_.tokens(node).size_bytes());
  if (to_host && host_->put(node, index_.parent(node), block_bytes_ + token_bytes, content, left)) {
    index_.set_below(node, TierKind::kHost, true);
    if (measures_) follow(copy_out_seconds_, seconds_since(began));
  }
  if (to_disk) disk_->put(index_, node, content);
}

// Where room will soon be needed, what leaves next is kept below before it is asked for: a prompt that needs many
// blocks at once finds them clean.
void LowerTier::clean_oldest() {
  const BlockPool& pool = kv_.pool();
  if (pool.num_free() > pool.num_blocks() / 8) return;
  BlockId block = pool.oldest_cached();
  for (int i = 0; i < kMostCleaned && block != kNoBlock && bytes_out_ >= 2 * block_bytes_; ++i) {
    if (!pool.is_forgettable(block)) keep_below(index_.node_of(block));
    block = pool.next_cached(block);
  }
}

bool LowerTier::persist_some(std::int64_t num_blocks) {
  if (disk_ == nullptr || !disk_->can_take(block_bytes_)) return false;
  bytes_out_ = std::max(options_.max_bytes_per_step, block_bytes_);
  const std::int64_t end = std::min(next_to_persist_ + num_blocks, kv_.pool().num_blocks());
  for (; next_to_persist_ < end && bytes_out_ >= block_bytes_; ++next_to_persist_) {
    const PrefixNode node = index_.node_of(BlockId{static_cast<std::int32_t>(next_to_persist_)});
    if (node != kNoNode) keep_below(node);
  }
  receive();
  if (next_to_persist_ < kv_.pool().num_blocks()) return true;
  next_to_persist_ = 0;
  return false;
}

void LowerTier::persist_all(Clock::time_point until) {
  if (disk_ == nullptr) return;
  next_to_persist_ = 0;
  bool in_time = true;
  do {
    if (disk_->can_take(block_bytes_)) continue;
    in_time = disk_->wait_idle(until);
    receive();
    if (!disk_->can_take(block_bytes_)) break;
  } while (in_time && persist_some(1) && Clock::now() < until);
  if (!disk_->wait_idle(until)) disk_->drop_writes();
}

void LowerTier::before_close(BlockTable& table) {
  const auto closing =
      std::find_if(restores_.begin(), restores_.end(), [&](const Restore& each) { return each.table == &table; });
  finish(closing);
}

bool LowerTier::give_way() {
  bool gave_way = false;
  for (auto restore = restores_.begin(); restore != restores_.end();) {
    const bool holds = !restore->held.blocks.empty();
    restore = holds ? finish(restore) : std::next(restore);
    gave_way = gave_way || holds;
  }
  return gave_way;
}

}  // namespace quire
