#include "core/kv/disk_tier.h"

#include <algorithm>
#include <utility>

namespace quire {

DiskTier::DiskTier(const DiskTierOptions& options, std::function<void()> ready)
    : options_(options),
      folder_({.directory = options.directory,
               .fingerprint = options.fingerprint,
               .block_size = options.block_size,
               .max_bytes = options.max_bytes,
               .max_queued_bytes = options.max_queued_bytes,
               .pause = options.pause},
              std::move(ready)) {}

bool DiskTier::can_take(std::int64_t payload_bytes) {
  return is_loaded_ && folder_.can_take(payload_bytes);
}

bool DiskTier::put(PrefixIndex& index, PrefixNode node, BlockPayload payload) {
  if (!can_take(static_cast<std::int64_t>(payload->size())) || index.is_ambiguous(node)) return false;
  const PrefixNode parent = index.parent(node);
  const std::span<const TokenId> tokens = index.tokens(node);
  TierRecord record{.fingerprint = options_.fingerprint,
                    .key = index.key_of(node),
                    .parent = index.key_of(parent),
                    .number = folder_.next_number(),
                    .position = static_cast<std::uint32_t>(index.position(node)),
                    .salt = PrefixIndex::is_root(parent) ? index.salt_of(node) : std::string(),
                    .tokens = {tokens.begin(), tokens.end()},
                    .payload = std::move(payload)};
  const auto payload_bytes = static_cast<std::int64_t>(record.payload->size());
  const std::int64_t num_bytes = record_bytes(record);
  const bool replaces = order_.is_there(node) && this->payload_bytes(node) < payload_bytes;
  if (replaces) {
    folder_.remove(record.key);
    order_.remove(node);
  }
  if (!make_room(index, num_bytes)) {
    if (replaces) strike(index, node);
    return false;
  }
  order_.add(node, parent, num_bytes, false);
  nodes_[record.key] = node;
  writings_[node] = {record.number, payload_bytes};
  index.set_below(node, TierKind::kDisk, true);
  folder_.write(std::move(record));
  return true;
}

void DiskTier::read(PrefixIndex& index, PrefixNode node) {
  reading_[index.key_of(node)] = node;
  folder_.read(index.key_of(node), writings_.at(node).number);
  index.add_user(node);
  ++num_reads_;
}

bool DiskTier::receive(PrefixIndex& index, std::vector<Arrived>& arrived) {
  events_.clear();
  folder_.take_events(events_, kMostEvents);
  for (TierEvent& event : events_)
    take_event(index, event, arrived);
  return events_.size() == kMostEvents;
}

void DiskTier::take_event(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) {
  const auto known = nodes_.find(event.key);
  switch (event.kind) {
    case TierEvent::Kind::kFound:
      if (!add_found(index, event)) folder_.remove(event.key);
      break;
    case TierEvent::Kind::kLoaded:
      is_loaded_ = true;
      make_room(index, 0);
      break;
    case TierEvent::Kind::kWritten:
      if (known != nodes_.end()) order_.set_there(known->second);
      break;
    case TierEvent::Kind::kLost:
      if (known != nodes_.end()) forget(index, known->second);
      break;
    case TierEvent::Kind::kRead: take_read(index, event, arrived); break;
  }
}

// Of what was found on disk only that is believed which follows from the root by comparing, and whose key is that of
// its content.
bool DiskTier::add_found(PrefixIndex& index, const TierEvent& event) {
  const TierRecord& record = event.record;
  const auto before = nodes_.find(record.parent);
  const bool is_first = record.position == 0;
  if (!is_first && before == nodes_.end()) return false;
  const PrefixNode parent = is_first ? index.acquire_root(record.salt) : before->second;
  const bool is_right = index.key_of(parent) == record.parent &&
                        index.key_after(record.parent, record.tokens) == record.key &&
                        (is_first || std::cmp_equal(index.position(parent) + 1, record.position));
  if (is_right) {
    PrefixNode node = index.find(parent, record.key, record.tokens);
    if (node == kNoNode) node = index.insert(parent, record.key, record.tokens);
    writings_[node] = {record.number, event.file_bytes - record_bytes(record)};
    nodes_[record.key] = node;
    if (!order_.contains(node)) order_.add(node, parent, event.file_bytes, true);
    index.set_below(node, TierKind::kDisk, true);
  }
  if (is_first) index.release_root(parent);
  return is_right;
}

void DiskTier::take_read(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) {
  const PrefixNode node = reading_.extract(event.key).mapped();
  const std::span<const TokenId> tokens = index.tokens(node);
  const TierRecord& record = event.record;
  const bool is_right = record.payload != nullptr && record.parent == index.key_of(index.parent(node)) &&
                        std::equal(tokens.begin(), tokens.end(), record.tokens.begin(), record.tokens.end());
  arrived.push_back({node, is_right ? record.payload : nullptr, event.seconds});
  if (!is_right && order_.is_there(node)) {
    folder_.remove(event.key);
    forget(index, node);
  }
  index.drop_user(node);
  index.forget_unused(node);
}

bool DiskTier::make_room(PrefixIndex& index, std::int64_t num_bytes) {
  if (num_bytes > options_.max_bytes) return false;
  while (order_.num_bytes() + num_bytes > options_.max_bytes) {
    const PrefixNode leaving = order_.next_to_leave();
    if (leaving == kNoNode) return false;
    folder_.remove(index.key_of(leaving));
    forget(index, leaving);
  }
  return true;
}

void DiskTier::forget(PrefixIndex& index, PrefixNode node) {
  order_.remove(node);
  strike(index, node);
  index.forget_unused(node);
}

void DiskTier::strike(PrefixIndex& index, PrefixNode node) {
  nodes_.erase(index.key_of(node));
  writings_.erase(node);
  index.set_below(node, TierKind::kDisk, false);
}

}  // namespace quire
