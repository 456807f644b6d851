#include "core/kv/tiers/disk_tier.h"

#include <algorithm>
#include <new>
#include <utility>

namespace quire {

DiskTier::DiskTier(const DiskTierOptions& options, std::function<void()> ready)
    : RecordTier(TierKind::kDisk),
      options_(options),
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
  if (!can_take(std::ssize(*payload)) || index.is_ambiguous(node)) return false;
  try {
    begin_to_write(index, node, std::move(payload));
  } catch (const std::bad_alloc&) {  // not kept
  }
  if (order_.contains(node)) return true;
  strike(index, node);
  return false;
}

// Without room or memory the node is not added to the order; all memory is allocated before it is added.
void DiskTier::begin_to_write(PrefixIndex& index, PrefixNode node, BlockPayload payload) {
  const PrefixNode parent = index.parent(node);
  const std::int64_t payload_bytes = std::ssize(*payload);
  if (order_.contains(node)) {
    if (!order_.is_there(node) || this->payload_bytes(node) >= payload_bytes) return;
    folder_.remove(index.key_of(node));
    order_.remove(node);
  }
  TierEvents write;
  write.push_back({.kind = TierEvent::Kind::kWritten,
                   .key = index.key_of(node),
                   .record = {.fingerprint = options_.fingerprint,
                              .key = index.key_of(node),
                              .parent = index.key_of(parent),
                              .number = folder_.next_number(),
                              .position = static_cast<std::uint32_t>(index.position(node)),
                              .salt = PrefixIndex::is_root(parent) ? index.salt_of(node) : std::string(),
                              .content = index.media().exported(index.tokens(node)),
                              .payload = std::move(payload)}});
  const TierRecord& record = write.front().record;
  const std::int64_t num_bytes = record_bytes(record);
  if (!make_room(index, num_bytes)) return;
  nodes_[record.key] = node;
  writings_[node] = {record.number, payload_bytes};
  order_.add(node, parent, num_bytes, false);
  index.set_below(node, TierKind::kDisk, true);
  folder_.write(std::move(write));
}

void DiskTier::read(PrefixIndex& index, PrefixNode node) {
  TierEvents read;
  read.push_back({.kind = TierEvent::Kind::kRead, .key = index.key_of(node)});
  read.front().record.number = writings_.at(node).number;
  reading_[index.key_of(node)] = node;
  folder_.read(std::move(read));
  index.add_user(node);
  ++num_reads_;
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

// A record found on disk is accepted only if it follows from the root by comparing contents and its key matches its
// content. Without memory for it, it is not accepted either.
bool DiskTier::add_found(PrefixIndex& index, const TierEvent& event) {
  const TierRecord& record = event.record;
  const bool is_first = record.position == 0;
  try {
    if (is_first) {
      const PrefixNode root = index.acquire_root(record.salt);
      const bool is_right = add_below(index, root, event);
      index.release_root(root);
      return is_right;
    }
    const auto before = nodes_.find(record.parent);
    return before != nodes_.end() && std::cmp_equal(index.position(before->second) + 1, record.position) &&
           add_below(index, before->second, event);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// False where the record is not right, or there is no memory for it.
bool DiskTier::add_below(PrefixIndex& index, PrefixNode parent, const TierEvent& event) {
  const TierRecord& record = event.record;
  if (index.key_of(parent) != record.parent) return false;
  const auto tokens = index.media().imported(record.content);
  if (!tokens) return false;
  const bool is_added =
      index.key_after(record.parent, *tokens) == record.key && add_child(index, parent, event, *tokens);
  index.media().drop_users(*tokens);
  return is_added;
}

bool DiskTier::add_child(PrefixIndex& index, PrefixNode parent, const TierEvent& event,
                         std::span<const TokenId> tokens) {
  const TierRecord& record = event.record;
  PrefixNode node = kNoNode;
  try {
    node = index.find(parent, record.key, tokens);
    if (node == kNoNode) node = index.insert(parent, record.key, tokens);
    nodes_[record.key] = node;
    writings_[node] = {record.number, event.file_bytes - record_bytes(record)};
    if (!order_.contains(node)) order_.add(node, parent, event.file_bytes, true);
    index.set_below(node, TierKind::kDisk, true);
    return true;
  } catch (const std::bad_alloc&) {
    if (node == kNoNode || order_.contains(node)) return false;
    strike(index, node);
    index.forget_unused(node);
    return false;
  }
}

void DiskTier::take_read(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) {
  const PrefixNode node = reading_.extract(event.key).mapped();
  const TierRecord& record = event.record;
  const bool is_right = record.payload != nullptr && record.parent == index.key_of(index.parent(node)) &&
                        index.holds(node, record.content);
  arrived.push_back({node, is_right ? record.payload : nullptr, event.seconds});
  if (!is_right && order_.is_there(node)) {
    folder_.remove(event.key);
    forget(index, node);
  }
}

bool DiskTier::make_room(PrefixIndex& index, std::int64_t num_bytes) {
  return order_.evict_until_fits(num_bytes, options_.max_bytes, [&](PrefixNode leaving) {
    folder_.remove(index.key_of(leaving));
    forget(index, leaving);
  });
}

}  // namespace quire
