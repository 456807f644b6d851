#include "core/kv/prefix_index.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/check.h"

namespace quire {

PrefixIndex::PrefixIndex(std::int64_t num_blocks, std::int32_t block_size, BlockHash hash)
    : block_size_(block_size),
      hash_(hash),
      entries_(static_cast<std::size_t>(num_blocks)),
      buckets_(std::bit_ceil(static_cast<std::size_t>(num_blocks) + 1), kNoBlock),
      alike_buckets_(buckets_.size(), kNoBlock),
      tokens_(new std::int32_t[static_cast<std::size_t>(num_blocks) * static_cast<std::size_t>(block_size)]) {}

PrefixNode PrefixIndex::acquire_root(const std::string& salt) {
  auto [found, added] = root_of_salt_.try_emplace(salt);
  if (added) {
    if (free_roots_.empty()) {
      roots_.emplace_back();
      free_roots_.push_back(PrefixNode{static_cast<std::int32_t>(-static_cast<std::int64_t>(roots_.size()))});
    }
    found->second = free_roots_.back();
    free_roots_.pop_back();
    Root& root = roots_[root_index(found->second)];
    root = {.salt = salt, .key = root_key(salt)};
  }
  ++roots_[root_index(found->second)].num_users;
  return found->second;
}

void PrefixIndex::release_root(PrefixNode root) {
  --roots_[root_index(root)].num_users;
  forget_root_if_unused(root);
}

void PrefixIndex::forget_root_if_unused(PrefixNode node) {
  const Root& root = roots_[root_index(node)];
  if (root.num_users > 0 || root.num_children > 0) return;
  root_of_salt_.erase(root.salt);
  free_roots_.push_back(node);
}

BlockId PrefixIndex::find(PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens) const {
  BlockId block = buckets_[key.low & (buckets_.size() - 1)];
  while (block != kNoBlock) {
    const Entry& candidate = entry(block);
    if (candidate.key == key && candidate.parent == parent && same_tokens(block, tokens)) return block;
    block = candidate.next_in_bucket;
  }
  return kNoBlock;
}

PrefixIndex::Partial PrefixIndex::find_partial(PrefixNode parent, std::span<const TokenId> wanted) const {
  Partial best;
  int num_looked_at = 0;
  BlockId child = alike_buckets_[alike_bucket(parent, wanted[0])];
  for (; num_looked_at < kMaxAlike && child != kNoBlock; child = entry(child).next_alike) {
    const std::span<const TokenId> held = tokens(child);
    if (entry(child).parent != parent || held[0] != wanted[0]) continue;
    ++num_looked_at;
    const std::size_t limit = std::min(held.size(), wanted.size());
    const auto end =
        std::mismatch(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(limit), wanted.begin()).first;
    const auto common = static_cast<std::int32_t>(end - held.begin());
    if (common > best.num_tokens) best = {child, common};
  }
  return best;
}

void PrefixIndex::insert(BlockId block, PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens) {
  QUIRE_CHECK(std::cmp_equal(tokens.size(), block_size_), "a full block has a key");
  enter(block, parent, tokens);
  Entry& added = entry(block);
  added.key = key;
  BlockId* slot = bucket(key);
  added.next_in_bucket = *slot;
  *slot = block;
}

void PrefixIndex::insert_partial(BlockId block, PrefixNode parent, std::span<const TokenId> tokens) {
  QUIRE_CHECK(std::cmp_less(tokens.size(), block_size_), "a full block is entered under its key");
  enter(block, parent, tokens);
}

void PrefixIndex::enter(BlockId block, PrefixNode parent, std::span<const TokenId> tokens) {
  Entry& added = entry(block);
  QUIRE_CHECK(added.num_tokens == 0, "a block is entered once");
  const std::size_t offset = static_cast<std::size_t>(block.value) * static_cast<std::size_t>(block_size_);
  std::memcpy(&tokens_[offset], tokens.data(), tokens.size_bytes());
  BlockId& head = alike_buckets_[alike_bucket(parent, tokens[0])];
  added = {.parent = parent, .num_tokens = static_cast<std::int32_t>(tokens.size()), .next_alike = head};
  if (head != kNoBlock) entry(head).previous_alike = block;
  head = block;
  ++num_children(parent);
}

void PrefixIndex::remove(BlockId block) {
  Entry& removed = entry(block);
  QUIRE_CHECK(removed.num_tokens > 0 && removed.num_children == 0, "children leave the tree before their parent");
  if (removed.num_tokens == block_size_) {
    BlockId* link = bucket(removed.key);
    while (*link != block)
      link = &entry(*link).next_in_bucket;
    *link = removed.next_in_bucket;
  }
  const PrefixNode parent = removed.parent;
  (removed.previous_alike == kNoBlock ? alike_buckets_[alike_bucket(parent, tokens(block)[0])]
                                      : entry(removed.previous_alike).next_alike) = removed.next_alike;
  if (removed.next_alike != kNoBlock) entry(removed.next_alike).previous_alike = removed.previous_alike;
  --num_children(parent);
  removed = {};
  if (is_root(parent)) forget_root_if_unused(parent);
}

std::span<const TokenId> PrefixIndex::tokens(BlockId block) const {
  const std::size_t offset = static_cast<std::size_t>(block.value) * static_cast<std::size_t>(block_size_);
  return {reinterpret_cast<const TokenId*>(&tokens_[offset]), static_cast<std::size_t>(entry(block).num_tokens)};
}

const ChainKey& PrefixIndex::key_of(PrefixNode node) const {
  return is_root(node) ? roots_[root_index(node)].key : entries_[static_cast<std::size_t>(node.value)].key;
}

const std::string& PrefixIndex::salt_of(PrefixNode node) const {
  while (!is_root(node))
    node = entries_[static_cast<std::size_t>(node.value)].parent;
  return roots_[root_index(node)].salt;
}

std::int32_t& PrefixIndex::num_children(PrefixNode node) {
  return is_root(node) ? roots_[root_index(node)].num_children
                       : entries_[static_cast<std::size_t>(node.value)].num_children;
}

std::size_t PrefixIndex::alike_bucket(PrefixNode parent, TokenId first) const {
  const auto key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent.value)) << 32) |
                   static_cast<std::uint32_t>(first.value);
  return XXH3_64bits(&key, sizeof key) & (alike_buckets_.size() - 1);
}

bool PrefixIndex::same_tokens(BlockId block, std::span<const TokenId> wanted) const {
  const std::span<const TokenId> held = tokens(block);
  return std::equal(held.begin(), held.end(), wanted.begin(), wanted.end());
}

void PrefixIndex::check_integrity() const {
  std::size_t num_hashed = 0;
  for (const BlockId head : buckets_) {
    for (BlockId block = head; block != kNoBlock; block = entry(block).next_in_bucket)
      ++num_hashed;
  }
  std::size_t num_full = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const BlockId block{static_cast<std::int32_t>(i)};
    const Entry& checked = entries_[i];
    if (checked.num_tokens == 0) {
      QUIRE_CHECK(checked.num_children == 0, "only entries have children");
      continue;
    }
    QUIRE_CHECK(
        is_root(checked.parent) || entries_[static_cast<std::size_t>(checked.parent.value)].num_tokens == block_size_,
        "a parent is a full block in the tree");
    QUIRE_CHECK(checked.next_alike == kNoBlock || entry(checked.next_alike).previous_alike == block,
                "those alike are linked both ways");
    if (checked.num_tokens < block_size_) continue;
    ++num_full;
    QUIRE_CHECK(checked.key == key_after(key_of(checked.parent), tokens(block)), "a key is that of the content");
    QUIRE_CHECK(find(checked.parent, checked.key, tokens(block)) == block, "a full block is found by its content");
  }
  QUIRE_CHECK(num_full == num_hashed, "full blocks and no others are in the hash table");
}

}  // namespace quire
