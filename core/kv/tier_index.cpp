#include "core/kv/tier_index.h"

#include <xxhash.h>

#include <algorithm>

namespace quire {

TierIndex::Node* TierIndex::find(TierId parent, const std::string& salt, std::span<const TokenId> tokens) {
  const auto [begin, end] = by_content_.equal_range(key_of(parent, salt, tokens));
  for (auto candidate = begin; candidate != end; ++candidate) {
    Node& node = *nodes_.at(candidate->second);
    if (node.parent == parent && (parent != kNoTierId || node.salt == salt) &&
        std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end())) {
      touch(node);
      return &node;
    }
  }
  return nullptr;
}

TierIndex::Node* TierIndex::find(TierId id) {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second.get();
}

TierIndex::Node& TierIndex::add(TierId id, TierId parent, const std::string& salt, std::span<const TokenId> tokens) {
  auto node = std::make_unique<Node>();
  node->id = id;
  node->parent = parent;
  if (parent == kNoTierId) node->salt = salt;
  node->tokens.assign(tokens.begin(), tokens.end());
  node->last_use = ++num_uses_;
  if (parent != kNoTierId) {
    Node& before = *nodes_.at(parent);
    if (can_leave(before)) leaving_.erase({before.last_use, before.id});
    ++before.num_children;
  }
  by_content_.emplace(key_of(parent, salt, tokens), id);
  return *(nodes_[id] = std::move(node));
}

void TierIndex::set_bytes(Node& node, std::int64_t num_bytes) {
  num_bytes_ += num_bytes - node.num_bytes;
  node.num_bytes = num_bytes;
  if (can_leave(node)) leaving_.emplace(node.last_use, node.id);
}

void TierIndex::touch(Node& node) {
  if (can_leave(node)) leaving_.erase({node.last_use, node.id});
  node.last_use = ++num_uses_;
  if (can_leave(node)) leaving_.emplace(node.last_use, node.id);
}

void TierIndex::remove(TierId id) {
  std::vector<TierId> doomed{id};
  for (std::size_t i = 0; i < doomed.size(); ++i) {
    if (nodes_.at(doomed[i])->num_children == 0) continue;
    for (const auto& [other, node] : nodes_) {
      if (node->parent == doomed[i]) doomed.push_back(other);
    }
  }
  for (std::size_t i = doomed.size(); i-- > 0;) {
    removed_(doomed[i]);
    const auto found = nodes_.find(doomed[i]);
    const Node& node = *found->second;
    const auto [begin, end] = by_content_.equal_range(key_of(node.parent, node.salt, node.tokens));
    by_content_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == node.id; }));
    leaving_.erase({node.last_use, node.id});
    if (node.parent != kNoTierId) {
      Node& before = *nodes_.at(node.parent);
      --before.num_children;
      if (can_leave(before)) leaving_.emplace(before.last_use, before.id);
    }
    num_bytes_ -= node.num_bytes;
    nodes_.erase(found);
  }
}

bool TierIndex::make_room(std::int64_t num_bytes, std::int64_t bound) {
  if (num_bytes > bound) return false;
  while (num_bytes_ + num_bytes > bound) {
    if (leaving_.empty()) return false;
    remove(leaving_.begin()->second);
  }
  return true;
}

std::uint64_t TierIndex::key_of(TierId parent, const std::string& salt, std::span<const TokenId> tokens) {
  const std::uint64_t seed = parent != kNoTierId ? parent : XXH3_64bits(salt.data(), salt.size());
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed);
}

}  // namespace quire
