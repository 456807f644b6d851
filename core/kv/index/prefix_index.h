// PrefixIndex: finds content by tokens, as a tree: a node is a block's content (tokens, or rows of media by their
// names) after its parent's. Engine thread only. A node's bytes are in a block of the pool, in lower tiers, or nowhere
// while other nodes depend on it. A full node is found by its chain key; then tokens and parents are compared, so that
// a collision never shares. A node with the same first tokens only is found among those with its parent and first
// token. Invariants: two nodes never have the same parent and the same full content; a node whose child is in the pool
// is in the pool; a node without content, children and users is removed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/ids.h"
#include "core/content/media_names.h"
#include "core/kv/index/cache_events.h"
#include "core/kv/index/chain_key.h"
#include "core/kv/kv_ids.h"

namespace quire {

enum class TierKind : std::uint8_t { kHost = 1, kDisk = 2, kShared = 4 };

class PrefixIndex {
 public:
  // `identity` names the model and its arithmetic, on which all content depends besides tokens and salts.
  PrefixIndex(std::int64_t num_blocks, std::int32_t block_size, BlockHash hash, std::string identity = {});

  // The root of a salt, kept while someone uses it or nodes hang below it.
  PrefixNode acquire_root(const std::string& salt);
  void release_root(PrefixNode root);

  // The full node with these block_size tokens below `parent`, whose key is key_after(parent, tokens); kNoNode where
  // there is none.
  PrefixNode find(PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens) const;
  // Calls visit(node) for every full node with that key until it returns true; that node, or kNoNode.
  template <class Visit>
  PrefixNode find_key(const ChainKey& key, Visit&& visit) const;
  // The child of `parent` in the pool that begins with most of `tokens`; of the kMaxAlike most recent ones with the
  // same first token, which bounds the cost.
  struct Partial {
    PrefixNode node = kNoNode;
    std::int32_t num_tokens = 0;
  };
  Partial find_partial(PrefixNode parent, std::span<const TokenId> tokens) const;
  static constexpr int kMaxAlike = 32;

  // The child whose snapshot covers most of `tokens`, and how many it covers.
  Partial find_snapshot(PrefixNode parent, std::span<const TokenId> tokens) const;

  // Adds a full node, or one of less than block_size tokens. Without content, children or users it is removed again.
  PrefixNode insert(PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens);
  PrefixNode insert_partial(PrefixNode parent, std::span<const TokenId> tokens);
  // Allocates nodes for all blocks of the pool, beside the nodes that lower tiers need, so that computing allocates
  // none. Call before a node is kept in a lower tier. Throws std::bad_alloc, and changes nothing then.
  void reserve_nodes();
  // Removes the node, and then its ancestors, as long as nothing keeps them.
  void forget_unused(PrefixNode node);

  // The pool's block that holds the node's content.
  void set_block(PrefixNode node, BlockId block);
  void clear_block(PrefixNode node);  // may leave the node unused
  BlockId block(PrefixNode node) const { return entry(node).block; }
  void set_below(PrefixNode node, TierKind tier, bool is_there);  // may leave the node unused
  bool is_below(PrefixNode node, TierKind tier) const { return (entry(node).below & static_cast<int>(tier)) != 0; }
  bool is_below(PrefixNode node) const { return entry(node).below != 0; }
  // Stored and removed full blocks of the pool; call flush_events() at the end of a step.
  CacheEventLog& log() { return log_; }
  const CacheEventLog& log() const { return log_; }
  void flush_events() noexcept;
  // The state that a sequence has after the node's first snapshot_tokens() tokens; kNoState where none is kept.
  void set_snapshot(PrefixNode node, StateId state, std::int32_t num_tokens);
  StateId snapshot(PrefixNode node) const { return entry(node).snapshot; }
  std::int32_t snapshot_tokens(PrefixNode node) const { return entry(node).snapshot_tokens; }
  // Whether the node, or one before it, shared its key with another node when it was made: the key does not identify
  // it.
  bool is_ambiguous(PrefixNode node) const { return entry(node).is_ambiguous; }
  // A node with users stays.
  void add_user(PrefixNode node) { ++entry(node).num_users; }
  void drop_user(PrefixNode node) { --entry(node).num_users; }

  PrefixNode node_of(BlockId block) const { return node_of_block_[static_cast<std::size_t>(block.value)]; }
  bool contains(BlockId block) const { return node_of(block) != kNoNode; }
  static bool is_root(PrefixNode node) { return node.value < 0; }
  std::int32_t num_tokens(PrefixNode node) const { return entry(node).num_tokens; }
  bool is_full(PrefixNode node) const { return entry(node).num_tokens == block_size_; }
  std::span<const TokenId> tokens(PrefixNode node) const;
  PrefixNode parent(PrefixNode node) const { return entry(node).parent; }
  std::int32_t position(PrefixNode node) const { return entry(node).position; }  // 0: right after a root
  const ChainKey& key_of(PrefixNode node) const;                                 // roots and full nodes only
  // The same in every process: rows of media are hashed as their pieces' keys.
  ChainKey key_after(const ChainKey& parent, std::span<const TokenId> tokens) const;
  // Whether the node has this content.
  bool holds(PrefixNode node, const PortableContent& content) const;
  MediaNames& media() { return media_; }
  const MediaNames& media() const { return media_; }
  ChainKey key_of_root(const std::string& salt) const;
  const std::string& salt_of(PrefixNode node) const;  // O(depth)
  const std::string& identity() const { return identity_; }
  std::size_t num_roots() const { return root_of_salt_.size(); }
  std::int64_t size() const { return num_nodes_; }

  void check_integrity() const;  // O(number of nodes)

 private:
  struct Entry {
    ChainKey key{};  // full nodes only
    PrefixNode parent{};
    std::int32_t num_tokens = 0;  // 0: not in the tree
    std::int32_t position = 0;
    std::int32_t num_children = 0;
    std::int32_t num_pooled_children = 0;  // children that are in the pool
    std::int32_t num_users = 0;
    BlockId block = kNoBlock;
    PrefixNode previous_alike = kNoNode;  // same parent and first token, or equal by accident of the hash
    PrefixNode next_alike = kNoNode;
    PrefixNode next_in_bucket = kNoNode;  // full nodes only
    StateId snapshot = kNoState;
    std::int32_t snapshot_tokens = 0;
    std::uint8_t below = 0;  // bits of TierKind
    bool is_ambiguous = false;
  };
  struct Root {
    std::string salt;
    ChainKey key{};
    std::int64_t num_users = 0;
    std::int32_t num_children = 0;
  };

  static std::size_t root_index(PrefixNode node) { return static_cast<std::size_t>(-1 - node.value); }
  const Entry& entry(PrefixNode node) const { return entries_[static_cast<std::size_t>(node.value)]; }
  Entry& entry(PrefixNode node) { return entries_[static_cast<std::size_t>(node.value)]; }
  PrefixNode make_node(PrefixNode parent, std::span<const TokenId> tokens);
  void add_nodes(std::size_t num_nodes);
  void link(PrefixNode node);
  void unlink(PrefixNode node);
  void link_alike(PrefixNode node);
  TokenId* tokens_at(PrefixNode node) const;
  std::int32_t& num_children(PrefixNode node);
  std::int32_t num_common(PrefixNode node, std::span<const TokenId> tokens) const;
  template <class Score>
  Partial best_alike(PrefixNode parent, std::span<const TokenId> tokens, Score&& score) const;
  std::size_t alike_bucket(PrefixNode parent, TokenId first) const;
  PrefixNode* bucket(const ChainKey& key) { return &buckets_[key.low & (buckets_.size() - 1)]; }
  void forget_root_if_unused(PrefixNode root);
  void check_node(PrefixNode node) const;

  template <class Name>
  void name_pooled(Name&& name) const;

  const std::int32_t block_size_;
  const BlockHash hash_;
  const std::string identity_;
  std::vector<Entry> entries_;
  std::vector<PrefixNode> free_nodes_;
  std::int64_t num_nodes_ = 0;
  std::vector<PrefixNode> node_of_block_;
  std::vector<PrefixNode> buckets_;                 // full nodes by key
  std::vector<PrefixNode> alike_buckets_;           // all nodes by parent and first token, most recent first
  std::vector<std::unique_ptr<TokenId[]>> tokens_;  // kChunk nodes each; pages are touched when a node is made
  std::vector<Root> roots_;
  std::vector<PrefixNode> free_roots_;
  std::unordered_map<std::string, PrefixNode> root_of_salt_;
  MediaNames media_;
  CacheEventLog log_{media_};
};

template <class Visit>
PrefixNode PrefixIndex::find_key(const ChainKey& key, Visit&& visit) const {
  PrefixNode node = buckets_[key.low & (buckets_.size() - 1)];
  while (node != kNoNode && !(entry(node).key == key && visit(node)))
    node = entry(node).next_in_bucket;
  return node;
}

}  // namespace quire
