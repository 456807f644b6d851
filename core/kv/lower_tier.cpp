#include "core/kv/lower_tier.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr double kNewest = 0.2;    // of the newest measurement
constexpr double kRefused = 0.99;  // what is left of a price each time that it was too high
// A restore that takes longer than computing would, and than this, is given up.
constexpr std::chrono::milliseconds kLeastPatience{100};
// Where it is not known what computing takes, as in a daemon that has computed nothing yet: a restore that brings fewer
// tokens in that time is given up.
constexpr std::chrono::milliseconds kPatience{2'000};
constexpr std::int64_t kLeastTokensInPatience = 512;
constexpr std::size_t kMovesOfRoom = 3;  // for a load a block, a part and a state may leave, and each be kept below

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

LowerTier::LowerTier(KvCache& kv, const KvBytes& bytes, HostTier* host, DiskTier* disk, const LowerTierOptions& options,
                     SharedTier* shared)
    : kv_(kv),
      index_(kv.mutable_index()),
      host_(host),
      disk_(disk),
      shared_(shared),
      options_(options),
      layout_(kv.beside(), bytes),
      chain_(kv, layout_),
      bytes_out_(std::max(options.max_bytes_per_step, block_bytes())) {
  due_copies_.reserve(static_cast<std::size_t>(kv_.states().num_states()));
  if (disk_ != nullptr) sources_.push_back({disk_});
  if (shared_ != nullptr) {
    sources_.push_back({shared_});
    to_publish_.reserve(kMostToPublish);
  }
  kv_.set_listener(this);
}

LowerTier::~LowerTier() {
  if (chain_.is_moving())
    chain_.give_up(Error{ErrorKind::kUnavailable, "The server is shutting down", "server_draining", {}});
  while (!restores_.empty())
    finish(restores_.begin());
  for (const PrefixNode node : to_publish_)
    index_.drop_user(node);
  kv_.set_listener(nullptr);
}

bool LowerTier::restore(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
                        Clock::time_point now, bool at_any_price) {
  if (table.is_restoring) return true;
  const bool is_fetch = at_any_price && shared_ != nullptr && !std::exchange(table.is_fetched, true);
  Restore restore{.id = next_restore_,
                  .table = &table,
                  .tokens = tokens,
                  .limit = limit,
                  .compute_seconds = is_fetch ? 0.0 : compute_seconds,
                  .give_up = now + patience(compute_seconds, limit),
                  .began = now,
                  .is_priced = compute_seconds > 0.0};
  if (is_fetch) restore.give_up = std::max(restore.give_up, now + kPatience);
  try {
    return begin_restore(std::move(restore));
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool LowerTier::begin_restore(Restore restore) {
  BlockTable& table = *restore.table;
  if (disk_ == nullptr || disk_->is_loaded()) {
    restore.num_blocks = num_blocks_to_restore(restore);
    if (!look_up(restore) && restore.num_blocks == 0) return false;
  }
  kv_.reserve(restore.held, restore.limit);
  restores_.push_back(std::move(restore));
  kv_.open(restores_.back().held, table);  // its root is there
  ++next_restore_;
  kv_.begin_restore(table);
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
  if (refuses_host && measures_) load_seconds_ *= kRefused;
  for (Source& source : sources_) {
    source.is_refused = compute > 0.0 && source.read_seconds > compute;
    if (source.is_refused) source.read_seconds *= kRefused;
  }
  PrefixNode node = restore.table->root;
  bool is_below = false;       // something of the prefix so far
  std::int64_t num_found = 0;  // blocks, up to where the sequence can go on
  bool is_found_below = false;
  const KvGroups groups = layout_.groups();
  KvPath path(groups, 0);
  std::array<std::int64_t, kMostKvGroups> last_below;  // by group, the last block whose content is below alone
  last_below.fill(-1);
  for (std::int64_t index = 0; (index + 1) * kv_.block_size() <= restore.limit; ++index) {
    node = child(restore, node, index);
    if (node == kNoNode) break;
    const auto is_kept = [&](std::size_t num_groups) {
      return (!refuses_host && is_on_host(node, num_groups)) || source_of(node, num_groups, true) != nullptr;
    };
    if (index_.block(node) == kNoBlock) {
      if (!is_kept(0)) break;
      is_below = true;
    }
    path.add([&](std::size_t i) {
      if (groups[i]->has(node)) return true;
      last_below.at(i) = index;
      return is_kept(i + 1);
    });
    if (!path.goes_on()) continue;
    num_found = index + 1;
    is_found_below = is_below;
    for (std::size_t i = 0; i < groups.size(); ++i)
      is_found_below = is_found_below || last_below.at(i) >= groups[i]->first_needed(num_found);
  }
  return is_found_below ? num_found : 0;
}

bool LowerTier::is_on_host(PrefixNode node, std::size_t num_groups) const {
  return host_ != nullptr && host_->contains(node) && holds(std::ssize(*host_->payload(node)), num_groups);
}

bool LowerTier::has_record(const RecordTier& tier, PrefixNode node, std::size_t num_groups) const {
  return tier.is_readable(node) && holds(tier.payload_bytes(node), num_groups);
}

const LowerTier::Source* LowerTier::source_of(PrefixNode node, std::size_t num_groups, bool if_cheap) const {
  const Source* cheapest = nullptr;
  for (const Source& source : sources_) {
    if ((if_cheap && source.is_refused) || !has_record(*source.tier, node, num_groups)) continue;
    if (cheapest == nullptr || source.read_seconds < cheapest->read_seconds) cheapest = &source;
  }
  return cheapest;
}

void LowerTier::begin_step(Clock::time_point now) {
  bytes_in_ = bytes_out_ = std::max(options_.max_bytes_per_step, block_bytes());
  is_moving_ = false;
  receive();
  for (auto restore = restores_.begin(); restore != restores_.end();) {
    bool has_ended = now >= restore->give_up && !brings_enough(*restore, now);
    if (has_ended) refuse_readers(*restore);
    if (has_ended) give_up_look_up(*restore, now);
    const bool is_known = restore->look_up == 0 && (disk_ == nullptr || disk_->is_loaded());
    if (!has_ended && restore->num_blocks == 0 && is_known) {
      restore->num_blocks = num_blocks_to_restore(*restore);
      has_ended = restore->num_blocks == 0;
    }
    if (!has_ended && is_known && restore->num_blocks > 0) has_ended = try_to_advance(*restore);
    restore = has_ended ? finish(restore) : std::next(restore);
  }
  drop_unwanted();
  if (chain_.add_moves(moves_, bytes_in_, bytes_out_)) is_moving_ = true;
  publish_new();
  clean_oldest();
}

// Then it has as long again.
bool LowerTier::brings_enough(Restore& restore, Clock::time_point now) {
  if (restore.is_priced) return false;
  const std::int64_t num_new = restore.num_copied - std::exchange(restore.num_copied_before, restore.num_copied);
  if (num_new * kv_.block_size() < kLeastTokensInPatience) return false;
  restore.give_up = now + kPatience;
  return true;
}

// What is read does not come: for a while nothing more is asked of there.
void LowerTier::refuse_readers(const Restore& restore) {
  for (Source& source : sources_) {
    const bool is_read =
        std::ranges::any_of(reading_, [&](const auto& each) { return each.second.tier == source.tier; });
    if (is_read) source.read_seconds = 2.0 * std::max(source.read_seconds, restore.compute_seconds * kv_.block_size());
  }
}

void LowerTier::receive() {
  for (Source& source : sources_)
    receive(source);
  if (shared_ != nullptr) receive_look_ups();
}

void LowerTier::receive(Source& source) {
  received_.clear();
  if (source.tier->receive(index_, received_)) is_moving_ = true;
  for (RecordTier::Arrived& each : received_) {
    const std::uint64_t restore = reading_.extract(each.node).mapped().restore;
    if (note_arrived(source, each, restore)) continue;
    index_.drop_user(each.node);
    index_.forget_unused(each.node);
  }
}

// False where that adds nothing that uses the node: it is damaged, was here already, or memory fails.
bool LowerTier::note_arrived(Source& source, RecordTier::Arrived& arrived, std::uint64_t restore) {
  if (arrived.payload == nullptr) return false;
  const std::int64_t num_bytes = std::ssize(*arrived.payload);
  if (!layout_.groups_in(num_bytes)) return false;
  follow(source.read_seconds, of_block(arrived.seconds, num_bytes));
  try {
    const auto [place, is_new] = arrived_.try_emplace(arrived.node, Waiting{arrived.payload, restore});
    if (!is_new) place->second = {std::move(arrived.payload), restore};
    return is_new;
  } catch (const std::bad_alloc&) {
    return false;
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
    const std::size_t num_groups = lacking(restore, node);
    if (index_.block(node) != kNoBlock && num_groups == 0) {
      if (!hold(restore, node)) return true;
      continue;
    }
    const BlockPayload payload = payload_of(node, num_groups);
    if (payload == nullptr) return !read_ahead(restore);
    if (!may_hold_more(restore)) return false;
    if (bytes_in_ < block_bytes()) {
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

BlockPayload LowerTier::payload_of(PrefixNode node, std::size_t num_groups) const {
  if (is_on_host(node, num_groups)) return host_->payload(node);
  const auto arrived = arrived_.find(node);
  if (arrived == arrived_.end()) return nullptr;
  const BlockPayload& payload = arrived->second.payload;
  return holds(std::ssize(*payload), num_groups) ? payload : nullptr;
}

// The restore continues with the node's block, which is kept until it has ended; its new parts are listed in `load`.
// False without room.
bool LowerTier::hold(Restore& restore, PrefixNode node, BlockMove* load) {
  const KvCache::Taken taken =
      kv_.take(restore.held, node, layout_.needed(restore.held.num_entered, restore.num_blocks));
  if (taken.block == kNoBlock) return false;
  if (load != nullptr && taken.is_new) load->block = taken.block;
  if (load != nullptr) load->extras = taken.extras;
  return true;
}

// False without room: some is left to those who run. All memory is taken before the restore holds what is to be loaded.
bool LowerTier::copy_in(Restore& restore, PrefixNode node, const BlockPayload& payload) {
  const bool is_there = index_.block(node) != kNoBlock;
  if (!is_there && kv_.pool().num_available() <= kv_.pool().num_blocks() / 16) return false;
  if (!layout_.has_spare(layout_.groups().size())) return false;
  const std::size_t num_groups = lacking(restore, node);
  reserve_moves(1 + kMovesOfRoom + (num_groups > 0 ? static_cast<std::size_t>(kv_.states().num_states()) : 0));
  if (num_groups > 0) move_due_copies();
  BlockMove load{.kind = BlockMove::Kind::kLoad, .node = node, .bytes = payload};
  if (!hold(restore, node, &load)) return false;
  moves_.push_back(std::move(load));
  bytes_in_ -= layout_.payload_bytes(num_groups);
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
                      .extras = {.state = StateId{copy.destination.value}},
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
    if (move.records == 0) continue;
    outgoing_.erase(move.node);
    outgoing_bytes_ -= std::ssize(*move.bytes);
    for (const Source& source : sources_) {
      if ((move.records & bit_of(source)) != 0) source.tier->put(index_, move.node, move.bytes);
    }
    index_.drop_user(move.node);
    index_.forget_unused(move.node);
  }
  chain_.end_if_done();
  if (!measures_) return;
  if (bytes_in > 0 && times.load_s > 0.0) follow(load_seconds_, of_block(times.load_s, bytes_in));
  if (bytes_out > 0 && times.offload_s > 0.0) follow(offload_seconds_, of_block(times.offload_s, bytes_out));
}

// Reads the next blocks, up to the bytes allowed in flight. False where the very next is not available.
bool LowerTier::read_ahead(const Restore& restore) {
  if (sources_.empty()) return false;
  const PrefixNode next = child(restore, restore.held.node, restore.held.num_entered);
  PrefixNode node = next;
  for (std::int64_t index = restore.held.num_entered; node != kNoNode;) {
    const std::size_t num_groups = layout_.lacking(node, index, restore.num_blocks);
    const Source* const source = source_of(node, num_groups);
    const bool is_to_be_read = (num_groups > 0 || index_.block(node) == kNoBlock) &&
                               payload_of(node, num_groups) == nullptr && source != nullptr && !reading_.contains(node);
    if (is_to_be_read) {
      const std::int64_t in_flight = num_bytes_in_flight();
      const std::int64_t num_bytes = source->tier->payload_bytes(node);
      if (in_flight > 0 && in_flight + num_bytes > options_.max_bytes_in_flight) break;
      const auto [reading, is_new] = reading_.emplace(node, Reading{restore.id, num_bytes, source->tier});
      try {
        source->tier->read(index_, node);
      } catch (const std::bad_alloc&) {
        reading_.erase(reading);
        throw;
      }
      source->tier->touch(node);
    }
    if (++index >= restore.num_blocks) break;
    node = child(restore, node, index);
  }
  return reading_.contains(next) || source_of(next, lacking(restore, next)) != nullptr;
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
  kv_.end_restore(*restore->table);
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

}  // namespace quire
