// PrefixIndex: which block holds which tokens, as a tree: a block's parent is the block before it. Engine thread only.
// A full block is found by its chain key, then its tokens and its parent are compared, so that a collision never
// shares; one that only begins alike is found among those with the same parent and first token, by comparing tokens.
// Invariants: two entries never have the same parent and the same full content; an entry with children is not removed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/block_pool.h"
#include "core/kv/chain_key.h"

namespace quire {

// A place in the tree: a block, or the root of one salt.
using PrefixNode = Id<struct PrefixNodeTag, std::int32_t>;

inline constexpr PrefixNode node_of(BlockId block) {
  return PrefixNode{block.value};
}

class PrefixIndex {
 public:
  PrefixIndex(std::int64_t num_blocks, std::int32_t block_size, BlockHash hash);

  // The root of a salt, kept while someone uses it or blocks hang below it.
  PrefixNode acquire_root(const std::string& salt);
  void release_root(PrefixNode root);

  // The full block with these block_size tokens below `parent`, whose key is key_after(parent, tokens); kNoBlock where
  // there is none.
  BlockId find(PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens) const;
  // The child of `parent` that begins with most of `tokens`; of the kMaxAlike most recent ones with the same first
  // token, which bounds the cost.
  struct Partial {
    BlockId block = kNoBlock;
    std::int32_t num_tokens = 0;
  };
  Partial find_partial(PrefixNode parent, std::span<const TokenId> tokens) const;
  static constexpr int kMaxAlike = 32;

  // Enters a full block; it must not be in the tree.
  void insert(BlockId block, PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens);
  // Enters a block with less than block_size tokens.
  void insert_partial(BlockId block, PrefixNode parent, std::span<const TokenId> tokens);
  void remove(BlockId block);

  bool contains(BlockId block) const { return entry(block).num_tokens > 0; }
  std::int32_t num_tokens(BlockId block) const { return entry(block).num_tokens; }
  std::span<const TokenId> tokens(BlockId block) const;
  PrefixNode parent(BlockId block) const { return entry(block).parent; }
  // The block before it; kNoBlock of a first one.
  BlockId parent_block(BlockId block) const { return is_root(parent(block)) ? kNoBlock : BlockId{parent(block).value}; }
  bool has_children(BlockId block) const { return entry(block).num_children > 0; }
  const ChainKey& key_of(PrefixNode node) const;  // of a root or a full block
  ChainKey key_after(const ChainKey& parent, std::span<const TokenId> tokens) const { return hash_(parent, tokens); }
  const std::string& salt_of(PrefixNode node) const;  // O(depth)
  std::size_t num_roots() const { return root_of_salt_.size(); }

  void check_integrity() const;  // O(num_blocks)

 private:
  struct Entry {
    ChainKey key{};  // full blocks only
    PrefixNode parent{};
    std::int32_t num_tokens = 0;  // 0: not in the tree
    std::int32_t num_children = 0;
    BlockId previous_alike = kNoBlock;  // same parent and first token, or equal by accident of the hash
    BlockId next_alike = kNoBlock;
    BlockId next_in_bucket = kNoBlock;  // full blocks only
  };
  struct Root {
    std::string salt;
    ChainKey key{};
    std::int64_t num_users = 0;
    std::int32_t num_children = 0;
  };

  static bool is_root(PrefixNode node) { return node.value < 0; }
  static std::size_t root_index(PrefixNode node) { return static_cast<std::size_t>(-1 - node.value); }
  const Entry& entry(BlockId block) const { return entries_[static_cast<std::size_t>(block.value)]; }
  Entry& entry(BlockId block) { return entries_[static_cast<std::size_t>(block.value)]; }
  std::int32_t& num_children(PrefixNode node);
  std::size_t alike_bucket(PrefixNode parent, TokenId first) const;
  void enter(BlockId block, PrefixNode parent, std::span<const TokenId> tokens);
  BlockId* bucket(const ChainKey& key) { return &buckets_[key.low & (buckets_.size() - 1)]; }
  bool same_tokens(BlockId block, std::span<const TokenId> tokens) const;
  void forget_root_if_unused(PrefixNode root);

  const std::int32_t block_size_;
  const BlockHash hash_;
  std::vector<Entry> entries_;
  std::vector<BlockId> buckets_;            // of full blocks by key
  std::vector<BlockId> alike_buckets_;      // of all blocks by parent and first token, most recent first
  std::unique_ptr<std::int32_t[]> tokens_;  // [num_blocks, block_size]; pages are touched when a block is first entered
  std::vector<Root> roots_;
  std::vector<PrefixNode> free_roots_;
  std::unordered_map<std::string, PrefixNode> root_of_salt_;
};

}  // namespace quire
