#include "core/kv/lower_tier.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr double kNewest = 0.2;    // of the newest measurement
constexpr double kRefused = 0.99;  // what is left of a price each time that it was too high
// A restore that takes longer than computing would, and than this, is given up.
constexpr std::chrono::milliseconds kLeastPatience{100};
constexpr std::chrono::milliseconds kPatience{2'000};  // where it is not known what computing takes
constexpr int kMostCleaned = 32;                       // cached blocks that a step looks at
constexpr std::size_t kMovesOfRoom = 3;  // for a load a block, a part and a state may leave, and each be kept below

void follow(double& average, double value) {
  average = average == 0.0 ? value : average + kNewest * (value - average);
}

// So that `count` more elements take no memory.
template <class Element>
void grow(std::vector<Element>& elements, std::size_t count) {
  if (elements.capacity() < elements.size() + count) elements.reserve(2 * elements.size() + count);
}

LowerTier::Clock::duration patience(double compute_seconds, std::int64_t num_tokens) {
  if (compute_seconds <= 0.0) return kPatience;
  const std::chrono::duration<double> computing(compute_seconds * static_cast<double>(num_tokens));
  return std::max<LowerTier::Clock::duration>(kLeastPatience,
                                              std::chrono::duration_cast<LowerTier::Clock::duration>(computing));
}

}  // namespace

LowerTier::LowerTier(KvCache& kv, std::int64_t block_bytes, std::int64_t extra_bytes, HostTier* host, DiskTier* disk,
                     const LowerTierOptions& options)
    : kv_(kv),
      index_(kv.mutable_index()),
      host_(host),
      disk_(disk),
      options_(options),
      block_bytes_(block_bytes),
      extra_bytes_(extra_bytes),
      chain_(kv, block_bytes, extra_bytes),
      bytes_out_(std::max(options.max_bytes_per_step, block_bytes_)) {
  due_copies_.reserve(static_cast<std::size_t>(kv_.states().num_states()));
  kv_.set_listener(this);
}

LowerTier::~LowerTier() {
  if (chain_.is_moving())
    chain_.give_up(Error{ErrorKind::kUnavailable, "The server is shutting down", "server_draining", {}});
  while (!restores_.empty())
    finish(restores_.begin());
  kv_.set_listener(nullptr);
}

bool LowerTier::restore(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
                        Clock::time_point now) {
  if (table.is_restoring) return true;
  try {
    return begin_restore(table, tokens, limit, compute_seconds, now);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool LowerTier::begin_restore(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit,
                              double compute_seconds, Clock::time_point now) {
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
  kv_.reserve(restore.held, limit);
  restores_.push_back(std::move(restore));
  kv_.open(restores_.back().held, table);  // its root is there
  ++next_restore_;
  table.is_restoring = true;
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
  const bool refuses_host = compute > 0.0 && load_seconds_ > compute;
  const bool refuses_disk = compute > 0.0 && read_seconds_ > compute;
  if (refuses_host && measures_) load_seconds_ *= kRefused;
  if (refuses_disk) read_seconds_ *= kRefused;
  PrefixNode node = restore.table->root;
  bool is_below = false;         // something of the prefix so far
  std::int64_t last_below = -1;  // the last block of it whose extra is below alone
  std::int64_t first_whole = 0;  // from here on all extras are available
  std::int64_t num_found = 0;    // blocks, up to where the sequence can go on
  bool is_found_below = false;
  for (std::int64_t index = 0; (index + 1) * kv_.block_size() <= restore.limit; ++index) {
    node = child(restore, node, index);
    if (node == kNoNode) break;
    const auto is_kept = [&](bool with_extra) {
      return (!refuses_host && is_on_host(node, with_extra)) || (!refuses_disk && is_on_disk(node, with_extra));
    };
    if (index_.block(node) == kNoBlock) {
      if (!is_kept(false)) break;
      is_below = true;
    }
    if (!pool_has_extra(node)) {
      last_below = index;
      if (!is_kept(true)) first_whole = index + 1;
    }
    const std::int64_t first_needed = first_with_extra(index + 1);
    if (first_whole > first_needed) continue;
    num_found = index + 1;
    is_found_below = is_below || last_below >= first_needed;
  }
  return is_found_below ? num_found : 0;
}

bool LowerTier::is_on_host(PrefixNode node, bool with_extra) const {
  if (host_ == nullptr || !host_->contains(node)) return false;
  return !with_extra || has_extra(std::ssize(*host_->payload(node)));
}

bool LowerTier::is_on_disk(PrefixNode node, bool with_extra) const {
  if (disk_ == nullptr || !disk_->is_readable(node)) return false;
  return !with_extra || has_extra(disk_->payload_bytes(node));
}

bool LowerTier::pool_has_extra(PrefixNode node) const {
  if (extra_bytes_ == 0) return true;
  return kv_.has_window() ? kv_.has_part(node) : kv_.has_state_after(node);
}

std::int64_t LowerTier::first_with_extra(std::int64_t num_blocks) const {
  return kv_.has_window() ? kv_.first_kept(num_blocks * kv_.block_size()) : num_blocks - 1;
}

// The last block comes with the state that the sequence continues from, the last ones with the parts that it sees.
bool LowerTier::lacks_extra(const Restore& restore, PrefixNode node, std::int64_t index) const {
  return index >= first_with_extra(restore.num_blocks) && !pool_has_extra(node);
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
    if (!has_ended && restore->num_blocks > 0) has_ended = try_to_advance(*restore);
    restore = has_ended ? finish(restore) : std::next(restore);
  }
  drop_unwanted();
  if (chain_.add_moves(moves_, bytes_in_, bytes_out_)) is_moving_ = true;
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
    const std::uint64_t restore = reading_.extract(each.node).mapped().restore;
    if (each.payload == nullptr) continue;
    const std::int64_t num_bytes = std::ssize(*each.payload);
    if (num_bytes != block_bytes_ && !has_extra(num_bytes)) continue;
    follow(read_seconds_, of_block(each.seconds, num_bytes));
    try {
      arrived_.emplace(each.node, Waiting{std::move(each.payload), restore});
    } catch (const std::bad_alloc&) {  // it is asked for again
      continue;
    }
    index_.add_user(each.node);
  }
}

// Where memory fails, what has come so far is all.
bool LowerTier::try_to_advance(Restore& restore) {
  try {
    return advance(restore);
  } catch (const std::bad_alloc&) {
    return true;
  }
}

// True where the restore has ended.
bool LowerTier::advance(Restore& restore) {
  while (restore.held.num_entered < restore.num_blocks) {
    const PrefixNode node = child(restore, restore.held.node, restore.held.num_entered);
    if (node == kNoNode) return true;
    const bool with_extra = lacks_extra(restore, node, restore.held.num_entered);
    if (index_.block(node) != kNoBlock && !with_extra) {
      if (!hold(restore, node)) return true;
      continue;
    }
    const BlockPayload payload = payload_of(node, with_extra);
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

BlockPayload LowerTier::payload_of(PrefixNode node, bool with_extra) const {
  if (is_on_host(node, with_extra)) return host_->payload(node);
  const auto arrived = arrived_.find(node);
  if (arrived == arrived_.end()) return nullptr;
  const BlockPayload& payload = arrived->second.payload;
  return with_extra && !has_extra(std::ssize(*payload)) ? nullptr : payload;
}

// The restore continues with the node's block, which is kept until it has ended; its new parts are listed in `load`.
// False without room.
bool LowerTier::hold(Restore& restore, PrefixNode node, BlockMove* load) {
  const bool with_part = kv_.has_window() && restore.held.num_entered >= first_with_extra(restore.num_blocks);
  const KvCache::Taken taken = kv_.take(restore.held, node, with_part);
  if (taken.block == kNoBlock) return false;
  if (load != nullptr && taken.is_new) load->block = taken.block;
  if (load != nullptr) load->part = taken.new_part;
  return true;
}

// False without room: some is left to those who run. All memory is taken before the restore holds what is to be loaded.
bool LowerTier::copy_in(Restore& restore, PrefixNode node, const BlockPayload& payload) {
  const bool is_there = index_.block(node) != kNoBlock;
  if (!is_there && kv_.pool().num_available() <= kv_.pool().num_blocks() / 16) return false;
  if (kv_.has_window() && kv_.available().parts <= kv_.capacity().parts / 16) return false;
  const bool with_extra = lacks_extra(restore, node, restore.held.num_entered);
  grow(moves_, 1 + kMovesOfRoom + (with_extra ? static_cast<std::size_t>(kv_.states().num_states()) : 0));
  BlockMove load{.kind = BlockMove::Kind::kLoad, .node = node, .bytes = payload};
  if (!hold(restore, node, &load)) return false;
  if (with_extra && !kv_.has_window()) {
    move_due_copies();
    load.state = kv_.keep_state_after(node);
  }
  moves_.push_back(std::move(load));
  bytes_in_ -= payload_bytes(with_extra);
  ++restore.num_copied;
  ++num_restored_;
  if (arrived_.erase(node) > 0) index_.drop_user(node);
  return true;
}

// Before a state is loaded: it may be one that the next step's copies begin with.
void LowerTier::move_due_copies() {
  due_copies_.clear();
  kv_.take_due_copies(due_copies_);
  for (const BlockCopy& copy : due_copies_) {
    moves_.push_back({.kind = BlockMove::Kind::kCopyState,
                      .state = StateId{copy.destination.value},
                      .source = StateId{copy.source.value}});
  }
}

void LowerTier::take_moves(std::vector<BlockMove>& moves) {
  QUIRE_CHECK(moves.empty(), "a step's moves are taken once");
  moves.swap(moves_);
}

void LowerTier::finish_moves(std::span<const BlockMove> moves, const MoveTimes& times) {
  std::int64_t bytes_in = 0;
  std::int64_t bytes_out = 0;
  for (const BlockMove& move : moves) {
    if (move.bytes == nullptr) continue;
    if (move.chain != 0) chain_.note_done(move);
    (move.kind == BlockMove::Kind::kLoad ? bytes_in : bytes_out) += std::ssize(*move.bytes);
    if (!move.is_for_disk) continue;
    outgoing_.erase(move.node);
    outgoing_bytes_ -= std::ssize(*move.bytes);
    disk_->put(index_, move.node, move.bytes);
    index_.drop_user(move.node);
    index_.forget_unused(move.node);
  }
  chain_.end_if_done();
  if (!measures_) return;
  if (bytes_in > 0 && times.load_s > 0.0) follow(load_seconds_, of_block(times.load_s, bytes_in));
  if (bytes_out > 0 && times.offload_s > 0.0) follow(offload_seconds_, of_block(times.offload_s, bytes_out));
}

// Reads the next blocks from the disk, up to the bytes allowed in flight. False where the very next is not available.
bool LowerTier::read_ahead(const Restore& restore) {
  if (disk_ == nullptr) return false;
  const PrefixNode next = child(restore, restore.held.node, restore.held.num_entered);
  PrefixNode node = next;
  for (std::int64_t index = restore.held.num_entered; node != kNoNode;) {
    const bool with_extra = lacks_extra(restore, node, index);
    const bool is_to_be_read = (with_extra || index_.block(node) == kNoBlock) &&
                               payload_of(node, with_extra) == nullptr && is_on_disk(node, with_extra) &&
                               !reading_.contains(node);
    if (is_to_be_read) {
      const std::int64_t in_flight = num_bytes_in_flight();
      const std::int64_t num_bytes = disk_->payload_bytes(node);
      if (in_flight > 0 && in_flight + num_bytes > options_.max_bytes_in_flight) break;
      const auto [reading, is_new] = reading_.emplace(node, Reading{restore.id, num_bytes});
      try {
        disk_->read(index_, node);
      } catch (const std::bad_alloc&) {
        reading_.erase(reading);
        throw;
      }
      disk_->touch(node);
    }
    if (++index >= restore.num_blocks) break;
    node = child(restore, node, index);
  }
  return reading_.contains(next) || is_on_disk(next, lacks_extra(restore, next, restore.held.num_entered));
}

std::int64_t LowerTier::num_bytes_in_flight() const {
  std::int64_t num_bytes = 0;
  for (const auto& [node, reading] : reading_)
    num_bytes += reading.num_bytes;
  for (const auto& [node, waiting] : arrived_)
    num_bytes += std::ssize(*waiting.payload);
  return num_bytes;
}

LowerTier::Restores::iterator LowerTier::finish(Restores::iterator restore) {
  restore->table->is_restoring = false;
  kv_.release(restore->held, restore->tokens, std::int64_t{restore->held.num_entered} * kv_.block_size());
  kv_.close(restore->held);
  return restores_.erase(restore);
}

// Blocks that arrived for a restore that has ended are dropped; another one that needs them reads them again.
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
  return offload_seconds_ + load_seconds_;
}

void LowerTier::set_swap_seconds(double of_block) {
  load_seconds_ = offload_seconds_ = of_block / 2.0;
  measures_ = false;
}

void LowerTier::before_eviction(PrefixNode node, WhenEvicted what) {
  if (what == WhenEvicted::kForgotten) {
    if (measures_) offload_seconds_ *= kRefused;
  } else {
    keep_below(node);
  }
}

// In the tiers that do not have it yet, or have it without its extra, as far as a step's share allows.
void LowerTier::keep_below(PrefixNode node, bool uses_host) {
  if (!index_.is_full(node)) return;
  const bool with_extra = extra_bytes_ > 0 && (kv_.has_window() ? kv_.keeps_part(node) : kv_.has_state_after(node));
  const std::int64_t num_bytes = payload_bytes(with_extra);
  const bool to_host = uses_host && host_ != nullptr && !is_on_host(node, with_extra);
  const bool is_on_its_way =
      outgoing_.contains(node) || (disk_ != nullptr && disk_->contains(node) && !disk_->is_readable(node));
  const bool to_disk = disk_ != nullptr && !is_on_its_way && !is_on_disk(node, with_extra) && can_write(num_bytes);
  if (host_ != nullptr && host_->contains(node)) host_->touch(node);
  if (disk_ != nullptr && disk_->contains(node)) disk_->touch(node);
  if ((!to_host && !to_disk) || bytes_out_ < block_bytes_) return;
  try {
    move_out(node, with_extra, to_host, to_disk);
  } catch (const std::bad_alloc&) {  // it is not kept, but recomputed
  }
}

// One copy for both. It is filled before anything that comes after it in the step reads it.
void LowerTier::move_out(PrefixNode node, bool with_extra, bool to_host, bool to_disk) {
  const std::int64_t num_bytes = payload_bytes(with_extra);
  const auto content = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(num_bytes));
  grow(moves_, 1);
  index_.reserve_nodes();
  if (to_disk) outgoing_.insert(node);
  bytes_out_ -= num_bytes;
  moves_.push_back({.kind = BlockMove::Kind::kOffload,
                    .node = node,
                    .block = index_.block(node),
                    .state = with_extra && !kv_.has_window() ? index_.snapshot(node) : kNoState,
                    .part = with_extra && kv_.has_window() ? kv_.part_of(node) : kNoPart,
                    .bytes = content,
                    .unfilled = content.get(),
                    .is_for_disk = to_disk});
  if (to_disk) {
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
// blocks at once finds them clean. In the host tier no more than fit into it: they would push each other out in every
// step, and an idle engine would never come to rest.
void LowerTier::clean_oldest() {
  const BlockPool& pool = kv_.pool();
  if (pool.num_free() > pool.num_blocks() / 8) return;
  std::int64_t host_room = host_ != nullptr ? host_->max_bytes() : std::numeric_limits<std::int64_t>::max();
  BlockId block = pool.oldest_cached();
  for (int i = 0; i < kMostCleaned && block != kNoBlock && bytes_out_ >= 2 * block_bytes_; ++i) {
    const PrefixNode node = index_.node_of(block);
    const bool leaves_content = !pool.is_forgettable(block);
    if (leaves_content) host_room -= payload_bytes(extra_bytes_ > 0) + token_bytes(node);
    if (leaves_content) keep_below(node, host_room >= 0);
    block = pool.next_cached(block);
  }
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
  if (chain_.holds_blocks()) {
    give_up_chain({ErrorKind::kUnavailable,
                   "Running requests needed the room. Please retry later.",
                   "kv_cache_full",
                   {},
                   std::chrono::seconds(1)});
    gave_way = true;
  }
  return gave_way;
}

}  // namespace quire
