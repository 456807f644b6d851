#include "core/kv/moves/coming_back.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace quire {

namespace {

// A restore that takes longer than computing would, and than this, is given up.
constexpr std::chrono::milliseconds kLeastPatience{100};
// Before the cost of computing has been measured, a restore is given up if it brings fewer tokens within this time.
constexpr std::chrono::milliseconds kPatience{2'000};
constexpr std::int64_t kLeastTokensInPatience = 512;
constexpr std::size_t kMovesOfRoom = 3;  // moves per load: evicting a block, a part and a state

ComingBack::Clock::duration patience(double compute_seconds, std::int64_t num_tokens) {
  if (compute_seconds <= 0.0) return kPatience;
  const std::chrono::duration<double> computing(compute_seconds * static_cast<double>(num_tokens));
  return std::max<ComingBack::Clock::duration>(kLeastPatience,
                                               std::chrono::duration_cast<ComingBack::Clock::duration>(computing));
}

}  // namespace

ComingBack::ComingBack(KvCache& kv, const RecordLayout& layout, TierSources& tiers, StepMoves& step,
                       std::int64_t max_bytes_in_flight)
    : kv_(kv),
      index_(kv.mutable_index()),
      layout_(layout),
      tiers_(tiers),
      step_(step),
      max_bytes_in_flight_(max_bytes_in_flight),
      look_ups_(kv, layout, tiers.shared()) {}

bool ComingBack::begin(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
                       Clock::time_point now, bool at_any_price) {
  if (table.is_restoring) return true;
  const bool is_fetch = at_any_price && tiers_.shared() != nullptr && !std::exchange(table.is_fetched, true);
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
    return begin(std::move(restore));
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool ComingBack::begin(Restore restore) {
  BlockTable& table = *restore.table;
  if (tiers_.is_loaded()) {
    restore.num_blocks = num_blocks_to_restore(restore);
    if (!look_ups_.ask(restore) && restore.num_blocks == 0) return false;
  }
  kv_.reserve(restore.held, restore.limit);
  restores_.push_back(std::move(restore));
  kv_.open(restores_.back().held, table);  // it needs the root only
  ++next_restore_;
  kv_.begin_restore(table);
  step_.has_more = true;
  return true;
}

// Counts prompt blocks up to the last one in the pool or in a tier cheaper than computing; 0 if the pool has them all.
std::int64_t ComingBack::num_blocks_to_restore(const Restore& restore) {
  const bool refuses_host = tiers_.refuse_dear(restore.compute_seconds * kv_.block_size());
  PrefixNode node = restore.table->root;
  bool is_below = false;       // something of the prefix so far
  std::int64_t num_found = 0;  // blocks, up to where the sequence can continue
  bool is_found_below = false;
  const KvGroups groups = layout_.groups();
  KvPath path(groups, 0);
  std::array<std::int64_t, kMostKvGroups> last_below;  // by group, the last block that only lower tiers hold
  last_below.fill(-1);
  for (std::int64_t index = 0; (index + 1) * kv_.block_size() <= restore.limit; ++index) {
    node = restore.child(kv_, node, index);
    if (node == kNoNode) break;
    const auto is_kept = [&](std::size_t num_groups) {
      return (!refuses_host && tiers_.is_on_host(node, num_groups)) ||
             tiers_.source_of(node, num_groups, true) != nullptr;
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

void ComingBack::advance_all(Clock::time_point now) {
  for (auto restore = restores_.begin(); restore != restores_.end();) {
    bool has_ended = now >= restore->give_up && !brings_enough(*restore, now);
    if (has_ended) refuse_readers(*restore);
    if (has_ended) look_ups_.give_up(*restore, now);
    const bool is_known = restore->look_up == 0 && tiers_.is_loaded();
    if (!has_ended && restore->num_blocks == 0 && is_known) {
      restore->num_blocks = num_blocks_to_restore(*restore);
      has_ended = restore->num_blocks == 0;
    }
    if (!has_ended && is_known && restore->num_blocks > 0) has_ended = try_to_advance(*restore);
    restore = has_ended ? finish(restore) : std::next(restore);
  }
  drop_unwanted();
}

// Extends the restore's time if it brought enough tokens since its last extension.
bool ComingBack::brings_enough(Restore& restore, Clock::time_point now) const {
  if (restore.is_priced) return false;
  const std::int64_t num_new = restore.num_copied - std::exchange(restore.num_copied_before, restore.num_copied);
  if (num_new * kv_.block_size() < kLeastTokensInPatience) return false;
  restore.give_up = now + kPatience;
  return true;
}

void ComingBack::refuse_readers(const Restore& restore) {
  for (TierSources::Source& source : tiers_.records()) {
    const bool is_read =
        std::ranges::any_of(reading_, [&](const auto& each) { return each.second.tier == source.tier; });
    if (is_read) tiers_.refuse_slow(source, restore.compute_seconds * kv_.block_size());
  }
}

void ComingBack::receive() {
  for (TierSources::Source& source : tiers_.records()) {
    received_.clear();
    if (source.tier->receive(index_, received_)) step_.has_more = true;
    for (RecordTier::Arrived& each : received_) {
      const std::uint64_t restore = reading_.extract(each.node).mapped().restore;
      if (note_arrived(source, each, restore)) continue;
      index_.drop_user(each.node);
      index_.forget_unused(each.node);
    }
  }
  if (look_ups_.receive(restores_)) step_.has_more = true;
}

// Returns false if nothing uses the node then: the record is damaged or was here already, or memory ran out.
bool ComingBack::note_arrived(TierSources::Source& source, RecordTier::Arrived& arrived, std::uint64_t restore) {
  if (arrived.payload == nullptr) return false;
  const std::int64_t num_bytes = std::ssize(*arrived.payload);
  if (!layout_.groups_in(num_bytes)) return false;
  tiers_.note_read(source, arrived.seconds, num_bytes);
  try {
    const auto [place, is_new] = arrived_.try_emplace(arrived.node, Waiting{arrived.payload, restore});
    if (!is_new) place->second = {std::move(arrived.payload), restore};
    return is_new;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// If memory runs out, the restore ends with the blocks loaded so far.
bool ComingBack::try_to_advance(Restore& restore) {
  try {
    return advance(restore);
  } catch (const std::bad_alloc&) {
    return true;
  }
}

// True where the restore has ended.
bool ComingBack::advance(Restore& restore) {
  while (restore.held.num_entered < restore.num_blocks) {
    const PrefixNode node = restore.child(kv_, restore.held.node, restore.held.num_entered);
    if (node == kNoNode) return true;
    const std::size_t num_groups = lacking(restore, node);
    if (index_.block(node) != kNoBlock && num_groups == 0) {
      if (!hold(restore, node)) return true;
      continue;
    }
    const BlockPayload payload = payload_of(node, num_groups);
    if (payload == nullptr) return !read_ahead(restore);
    if (!may_hold_more(restore)) return false;
    if (step_.bytes_in < layout_.block_bytes()) {
      step_.has_more = true;
      return false;
    }
    if (!copy_in(restore, node, payload)) return true;
  }
  return true;
}

// The first restore may hold any blocks. The others share a quarter of the pool, since held blocks are not available to
// running sequences.
bool ComingBack::may_hold_more(const Restore& restore) const {
  if (&restore == &restores_.front()) return true;
  return (restore.num_copied + 1) * 4 * std::ssize(restores_) <= kv_.pool().num_blocks();
}

BlockPayload ComingBack::payload_of(PrefixNode node, std::size_t num_groups) const {
  if (tiers_.is_on_host(node, num_groups)) return tiers_.host()->payload(node);
  const auto arrived = arrived_.find(node);
  if (arrived == arrived_.end()) return nullptr;
  const BlockPayload& payload = arrived->second.payload;
  return tiers_.holds(std::ssize(*payload), num_groups) ? payload : nullptr;
}

// The restore continues with the node's block, which is kept until it has ended; its new places are listed in `load`.
// False without room.
bool ComingBack::hold(Restore& restore, PrefixNode node, BlockMove* load) {
  const KvCache::Taken taken =
      kv_.take(restore.held, node, layout_.needed(restore.held.num_entered, restore.num_blocks));
  if (taken.block == kNoBlock) return false;
  if (load != nullptr && taken.is_new) load->block = taken.block;
  if (load != nullptr) load->extras = taken.extras;
  return true;
}

// False without room: a share of the pool is left to running sequences. All memory is allocated before anything is
// held.
bool ComingBack::copy_in(Restore& restore, PrefixNode node, const BlockPayload& payload) {
  const bool is_there = index_.block(node) != kNoBlock;
  if (!is_there && kv_.pool().num_available() <= kv_.pool().num_blocks() / 16) return false;
  if (!layout_.has_spare(layout_.groups().size())) return false;
  const std::size_t num_groups = lacking(restore, node);
  step_.reserve(1 + kMovesOfRoom + (num_groups > 0 ? static_cast<std::size_t>(kv_.states().num_states()) : 0));
  if (num_groups > 0) step_.add_due_copies();
  BlockMove load{.kind = BlockMove::Kind::kLoad, .node = node, .bytes = payload};
  if (!hold(restore, node, &load)) return false;
  step_.moves.push_back(std::move(load));
  step_.bytes_in -= layout_.payload_bytes(num_groups);
  ++restore.num_copied;
  ++num_restored_;
  if (arrived_.erase(node) > 0) index_.drop_user(node);
  return true;
}

// Reads the next blocks, up to the bytes allowed in flight. False where the very next is not available.
bool ComingBack::read_ahead(const Restore& restore) {
  if (tiers_.records().empty()) return false;
  const PrefixNode next = restore.child(kv_, restore.held.node, restore.held.num_entered);
  PrefixNode node = next;
  for (std::int64_t index = restore.held.num_entered; node != kNoNode;) {
    const std::size_t num_groups = layout_.lacking(node, index, restore.num_blocks);
    const TierSources::Source* const source = tiers_.source_of(node, num_groups);
    const bool is_to_be_read = (num_groups > 0 || index_.block(node) == kNoBlock) &&
                               payload_of(node, num_groups) == nullptr && source != nullptr && !reading_.contains(node);
    if (is_to_be_read) {
      const std::int64_t in_flight = num_bytes_in_flight();
      const std::int64_t num_bytes = source->tier->payload_bytes(node);
      if (in_flight > 0 && in_flight + num_bytes > max_bytes_in_flight_) break;
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
    node = restore.child(kv_, node, index);
  }
  return reading_.contains(next) || tiers_.source_of(next, lacking(restore, next)) != nullptr;
}

std::int64_t ComingBack::num_bytes_in_flight() const {
  std::int64_t num_bytes = 0;
  for (const auto& [node, reading] : reading_)
    num_bytes += reading.num_bytes;
  for (const auto& [node, waiting] : arrived_)
    num_bytes += std::ssize(*waiting.payload);
  return num_bytes;
}

Restores::iterator ComingBack::finish(Restores::iterator restore) {
  kv_.end_restore(*restore->table);
  kv_.release(restore->held, restore->tokens, std::int64_t{restore->held.num_entered} * kv_.block_size());
  kv_.close(restore->held);
  return restores_.erase(restore);
}

void ComingBack::close(const BlockTable& table) {
  finish(std::ranges::find(restores_, &table, &Restore::table));
}

bool ComingBack::give_way() {
  bool gave_way = false;
  for (auto restore = restores_.begin(); restore != restores_.end();) {
    const bool holds = !restore->held.blocks.empty();
    restore = holds ? finish(restore) : std::next(restore);
    gave_way = gave_way || holds;
  }
  return gave_way;
}

void ComingBack::end_all() {
  while (!restores_.empty())
    finish(restores_.begin());
}

// Blocks that arrived for a restore that has ended are dropped; another one that needs them reads them again.
void ComingBack::drop_unwanted() {
  for (auto each = arrived_.begin(); each != arrived_.end();) {
    if (std::ranges::find(restores_, each->second.restore, &Restore::id) != restores_.end()) {
      ++each;
      continue;
    }
    const PrefixNode node = each->first;
    each = arrived_.erase(each);
    index_.drop_user(node);
    index_.forget_unused(node);
  }
}

std::optional<ComingBack::Clock::time_point> ComingBack::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Restore& restore : restores_)
    next = std::min(next.value_or(restore.give_up), restore.give_up);
  return next;
}

}  // namespace quire
