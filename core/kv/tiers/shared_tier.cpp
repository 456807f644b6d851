#include "core/kv/tiers/shared_tier.h"

#include <algorithm>
#include <new>
#include <utility>

namespace quire {

SharedTier::SharedTier(const SharedTierOptions& options, std::unique_ptr<SharedStore> store)
    : RecordTier(TierKind::kShared), options_(options), store_(std::move(store)) {}

bool SharedTier::put(PrefixIndex& index, PrefixNode node, BlockPayload payload) {
  const std::int64_t num_bytes = std::ssize(*payload);
  if (!can_take(num_bytes) || index.is_ambiguous(node)) return contains(node);
  if (contains(node) && (!is_readable(node) || this->payload_bytes(node) >= num_bytes)) return true;
  try {
    const PrefixNode parent = index.parent(node);
    TierEvents write;
    // The salt is part of the root's key, and may be a secret of a client: it is not written.
    write.push_back({.kind = TierEvent::Kind::kWritten,
                     .key = index.key_of(node),
                     .record = {.fingerprint = options_.fingerprint,
                                .key = index.key_of(node),
                                .parent = index.key_of(parent),
                                .position = static_cast<std::uint32_t>(index.position(node)),
                                .content = index.media().exported(index.tokens(node)),
                                .payload = std::move(payload)},
                     .only_if_absent = num_bytes < options_.payload_bytes.back()});
    if (contains(node)) order_.remove(node);
    if (remember(index, node, num_bytes, false)) store_->write(std::move(write));
  } catch (const std::bad_alloc&) {  // not kept
  }
  if (contains(node)) return true;
  strike(index, node);
  return false;
}

// Memory is allocated before the node counts as present. False if all remembered nodes are in use.
bool SharedTier::remember(PrefixIndex& index, PrefixNode node, std::int64_t payload_bytes, bool is_there) {
  const auto leave = [&](PrefixNode leaving) { forget(index, leaving); };
  if (!order_.evict_until_fits(1, options_.max_known, leave)) return false;
  nodes_[index.key_of(node)] = node;
  payload_bytes_[node] = payload_bytes;
  order_.add(node, index.parent(node), 1, is_there);
  index.set_below(node, TierKind::kShared, true);
  return true;
}

bool SharedTier::add_found(PrefixIndex& index, PrefixNode node, std::int64_t payload_bytes) {
  if (contains(node)) {
    if (is_readable(node)) payload_bytes_[node] = payload_bytes;
    return true;
  }
  if (index.is_ambiguous(node)) return false;
  // Removing another node to make room may remove the only reference to this one.
  index.add_user(node);
  bool is_known = false;
  try {
    is_known = remember(index, node, payload_bytes, true);
  } catch (const std::bad_alloc&) {
    strike(index, node);
  }
  index.drop_user(node);
  return is_known;
}

std::optional<std::int64_t> SharedTier::payload_in(std::int64_t record_bytes, std::size_t num_media) const {
  const std::int64_t head = quire::record_bytes({}) + options_.block_size * static_cast<std::int64_t>(sizeof(TokenId)) +
                            static_cast<std::int64_t>(num_media * sizeof(MediaRef));
  const std::int64_t payload = record_bytes - head;
  const bool is_right = std::ranges::find(options_.payload_bytes, payload) != options_.payload_bytes.end();
  return is_right && record_bytes > 0 ? std::optional(payload) : std::nullopt;
}

void SharedTier::read(PrefixIndex& index, PrefixNode node) {
  TierEvents read;
  read.push_back({.kind = TierEvent::Kind::kRead, .key = index.key_of(node)});
  read.front().record.fingerprint = options_.fingerprint;
  reading_[index.key_of(node)] = node;
  store_->read(std::move(read));
  index.add_user(node);
}

std::uint64_t SharedTier::look_up(std::vector<ChainKey> keys) {
  KeyLookUps look_up;
  look_up.push_back({.id = num_look_ups_ + 1, .fingerprint = options_.fingerprint, .keys = std::move(keys)});
  store_->look_up(std::move(look_up));
  return ++num_look_ups_;
}

// A store that failed may have lost its records: it is treated as a new store, asked again and written again.
void SharedTier::forget_if_failed(PrefixIndex& index) {
  const std::uint64_t num_failures = store_->stats().num_failures;
  if (std::exchange(num_failures_, num_failures) == num_failures) return;
  for (PrefixNode node = order_.next_to_leave(); node != kNoNode; node = order_.next_to_leave())
    forget(index, node);
}

bool SharedTier::receive(PrefixIndex& index, std::vector<Arrived>& arrived) {
  forget_if_failed(index);
  return RecordTier::receive(index, arrived);
}

void SharedTier::take_event(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) {
  if (event.kind == TierEvent::Kind::kRead) return take_read(index, event, arrived);
  const auto known = nodes_.find(event.key);
  if (known == nodes_.end()) return;
  const PrefixNode node = known->second;
  if (event.kind == TierEvent::Kind::kWritten) {
    order_.set_there(node);
  } else {
    forget(index, node);
  }
}

void SharedTier::take_read(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) {
  const PrefixNode node = reading_.extract(event.key).mapped();
  const TierRecord& record = event.record;
  const bool is_right = record.payload != nullptr && record.fingerprint == options_.fingerprint &&
                        record.key == event.key && record.parent == index.key_of(index.parent(node)) &&
                        index.holds(node, record.content);
  arrived.push_back({node, is_right ? record.payload : nullptr, event.seconds});
  if (!is_right && order_.is_there(node)) forget(index, node);
}

}  // namespace quire
