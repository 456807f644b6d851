#include "core/kv/index/prefix_index.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <utility>

#include "core/kv/cache_salt.h"
#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::size_t kNodesPerChunk = 4096;  // nodes whose tokens are allocated together

}  // namespace

PrefixIndex::PrefixIndex(std::int64_t num_blocks, std::int32_t block_size, BlockHash hash, std::string identity)
    : block_size_(block_size),
      hash_(hash),
      identity_(std::move(identity)),
      node_of_block_(static_cast<std::size_t>(num_blocks), kNoNode) {
  add_nodes(static_cast<std::size_t>(num_blocks) + 1);
}

void PrefixIndex::add_nodes(std::size_t num_nodes) {
  // Memory is allocated before anything changes.
  const std::size_t first = entries_.size();
  const std::size_t total = first + num_nodes;
  entries_.reserve(total);
  free_nodes_.reserve(total);
  tokens_.reserve(total / kNodesPerChunk + 1);
  while (tokens_.size() * kNodesPerChunk < total) {
    // Left uninitialised, so that pages are touched only when a node uses them.
    tokens_.emplace_back(new TokenId[kNodesPerChunk * static_cast<std::size_t>(block_size_)]);
  }
  std::vector<PrefixNode> buckets(std::bit_ceil(total), kNoNode);
  std::vector<PrefixNode> alike_buckets(buckets.size(), kNoNode);
  entries_.resize(total);
  for (std::size_t i = total; i-- > first;)
    free_nodes_.push_back(PrefixNode{static_cast<std::int32_t>(i)});
  buckets_.swap(buckets);
  alike_buckets_.swap(alike_buckets);
  for (std::size_t i = 0; i < first; ++i) {
    const PrefixNode node{static_cast<std::int32_t>(i)};
    if (entry(node).num_tokens == 0) continue;
    link_alike(node);
    if (is_full(node)) link(node);
  }
}

void PrefixIndex::reserve_nodes() {
  if (free_nodes_.size() <= node_of_block_.size()) add_nodes(entries_.size());
}

PrefixNode PrefixIndex::acquire_root(const std::string& salt) {
  auto found = root_of_salt_.find(salt);
  if (found == root_of_salt_.end()) {
    if (free_roots_.empty()) {
      // Reserves memory, so that forgetting a root allocates nothing.
      if (free_roots_.capacity() <= roots_.size()) free_roots_.reserve(2 * roots_.size() + 1);
      roots_.emplace_back();
      free_roots_.push_back(PrefixNode{static_cast<std::int32_t>(-static_cast<std::int64_t>(roots_.size()))});
    }
    Root root{.salt = salt, .key = key_of_root(salt)};
    found = root_of_salt_.emplace(salt, free_roots_.back()).first;
    free_roots_.pop_back();
    roots_[root_index(found->second)] = std::move(root);
  }
  ++roots_[root_index(found->second)].num_users;
  return found->second;
}

ChainKey PrefixIndex::key_of_root(const std::string& salt) const {
  return root_key(std::to_string(identity_.size()) + ':' + identity_ + salt);
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

ChainKey PrefixIndex::key_after(const ChainKey& parent, std::span<const TokenId> tokens) const {
  if (!has_media(tokens)) return hash_(parent, tokens);
  // Allocates nothing, because commits call it.
  constexpr std::size_t kAtOnce = 64;
  std::array<TokenId, kAtOnce> portable;
  ChainKey key = parent;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kAtOnce) {
    const std::span part = tokens.subspan(begin, std::min(kAtOnce, tokens.size() - begin));
    std::ranges::copy(part, portable.begin());
    media_.visit(part, [&](const MediaNames::Stretch& stretch) { MediaNames::make_portable(stretch, portable); });
    key = hash_(key, std::span(portable).first(part.size()));
  }
  media_.visit(tokens, [&](const MediaNames::Stretch& stretch) {
    key = hash_(key, std::bit_cast<std::array<TokenId, sizeof(MediaRef) / sizeof(TokenId)>>(stretch.media));
  });
  return key;
}

bool PrefixIndex::holds(PrefixNode node, const PortableContent& content) const {
  const std::span<const TokenId> held = tokens(node);
  if (!has_media(held)) return content.media.empty() && std::ranges::equal(held, content.tokens);
  return media_.exported(held) == content;
}

PrefixNode PrefixIndex::find(PrefixNode parent, const ChainKey& key, std::span<const TokenId> wanted) const {
  return find_key(key, [&](PrefixNode node) {
    const std::span<const TokenId> held = tokens(node);
    return entry(node).parent == parent && std::equal(held.begin(), held.end(), wanted.begin(), wanted.end());
  });
}

// The pooled child with the highest score among those that start with the same token.
template <class Score>
PrefixIndex::Partial PrefixIndex::best_alike(PrefixNode parent, std::span<const TokenId> wanted, Score&& score) const {
  Partial best;
  int num_looked_at = 0;
  PrefixNode child = alike_buckets_[alike_bucket(parent, wanted[0])];
  for (; num_looked_at < kMaxAlike && child != kNoNode; child = entry(child).next_alike) {
    if (entry(child).parent != parent || tokens(child)[0] != wanted[0]) continue;
    ++num_looked_at;
    if (entry(child).block == kNoBlock) continue;
    const std::int32_t num_tokens = score(child);
    if (num_tokens > best.num_tokens) best = {child, num_tokens};
  }
  return best;
}

std::int32_t PrefixIndex::num_common(PrefixNode node, std::span<const TokenId> wanted) const {
  const std::span<const TokenId> held = tokens(node).first(std::min(tokens(node).size(), wanted.size()));
  return static_cast<std::int32_t>(std::mismatch(held.begin(), held.end(), wanted.begin()).first - held.begin());
}

PrefixIndex::Partial PrefixIndex::find_partial(PrefixNode parent, std::span<const TokenId> wanted) const {
  return best_alike(parent, wanted, [&](PrefixNode child) { return num_common(child, wanted); });
}

PrefixIndex::Partial PrefixIndex::find_snapshot(PrefixNode parent, std::span<const TokenId> wanted) const {
  return best_alike(parent, wanted, [&](PrefixNode child) {
    const std::int32_t num_tokens = entry(child).snapshot_tokens;
    return num_tokens <= num_common(child, wanted) ? num_tokens : 0;
  });
}

void PrefixIndex::set_snapshot(PrefixNode node, StateId state, std::int32_t num_tokens) {
  QUIRE_CHECK(entry(node).block != kNoBlock || state == kNoState, "a snapshot is kept beside its block");
  entry(node).snapshot = state;
  entry(node).snapshot_tokens = num_tokens;
}

PrefixNode PrefixIndex::insert(PrefixNode parent, const ChainKey& key, std::span<const TokenId> tokens) {
  QUIRE_CHECK(std::cmp_equal(tokens.size(), block_size_), "a full node has a key");
  const PrefixNode node = make_node(parent, tokens);
  entry(node).key = key;
  entry(node).is_ambiguous =
      (!is_root(parent) && entry(parent).is_ambiguous) || find_key(key, [](PrefixNode) { return true; }) != kNoNode;
  link(node);
  return node;
}

PrefixNode PrefixIndex::insert_partial(PrefixNode parent, std::span<const TokenId> tokens) {
  QUIRE_CHECK(std::cmp_less(tokens.size(), block_size_), "a full node is entered under its key");
  return make_node(parent, tokens);
}

PrefixNode PrefixIndex::make_node(PrefixNode parent, std::span<const TokenId> tokens) {
  if (free_nodes_.empty()) add_nodes(entries_.size());
  const PrefixNode node = free_nodes_.back();
  free_nodes_.pop_back();
  std::copy(tokens.begin(), tokens.end(), tokens_at(node));
  entry(node) = {.parent = parent,
                 .num_tokens = static_cast<std::int32_t>(tokens.size()),
                 .position = is_root(parent) ? 0 : entry(parent).position + 1};
  media_.add_users(tokens);
  ++num_children(parent);
  ++num_nodes_;
  link_alike(node);
  return node;
}

void PrefixIndex::link(PrefixNode node) {
  PrefixNode* at = bucket(entry(node).key);
  entry(node).next_in_bucket = *at;
  *at = node;
}

void PrefixIndex::link_alike(PrefixNode node) {
  PrefixNode& head = alike_buckets_[alike_bucket(entry(node).parent, tokens(node)[0])];
  entry(node).previous_alike = kNoNode;
  entry(node).next_alike = head;
  if (head != kNoNode) entry(head).previous_alike = node;
  head = node;
}

void PrefixIndex::unlink(PrefixNode node) {
  const Entry& removed = entry(node);
  if (is_full(node)) {
    PrefixNode* at = bucket(removed.key);
    while (*at != node)
      at = &entry(*at).next_in_bucket;
    *at = removed.next_in_bucket;
  }
  (removed.previous_alike == kNoNode ? alike_buckets_[alike_bucket(removed.parent, tokens(node)[0])]
                                     : entry(removed.previous_alike).next_alike) = removed.next_alike;
  if (removed.next_alike != kNoNode) entry(removed.next_alike).previous_alike = removed.previous_alike;
}

void PrefixIndex::forget_unused(PrefixNode node) {
  while (!is_root(node)) {
    const Entry& unused = entry(node);
    if (unused.num_children > 0 || unused.num_users > 0 || unused.block != kNoBlock || unused.below != 0) return;
    const PrefixNode parent = unused.parent;
    unlink(node);
    media_.drop_users(tokens(node));
    entry(node) = {};
    free_nodes_.push_back(node);
    --num_nodes_;
    --num_children(parent);
    if (is_root(parent)) forget_root_if_unused(parent);
    node = parent;
  }
}

void PrefixIndex::set_block(PrefixNode node, BlockId block) {
  Entry& holder = entry(node);
  QUIRE_CHECK(holder.block == kNoBlock && !contains(block), "a node has one block, a block one node");
  const bool follows_pooled = is_root(holder.parent) || entry(holder.parent).block != kNoBlock;
  QUIRE_CHECK(follows_pooled, "a node enters the pool after its parent");
  if (!is_root(holder.parent)) ++entry(holder.parent).num_pooled_children;
  holder.block = block;
  if (is_full(node)) {
    const ChainKey* const parent = is_root(holder.parent) ? nullptr : &key_of(holder.parent);
    log_.note_stored(holder.key, parent, tokens(node), log_.begins_event(parent) ? adapter_in_salt(salt_of(node)) : "");
  }
  node_of_block_[static_cast<std::size_t>(block.value)] = node;
}

void PrefixIndex::clear_block(PrefixNode node) {
  Entry& holder = entry(node);
  QUIRE_CHECK(holder.num_pooled_children == 0, "children leave the pool before their parent");
  QUIRE_CHECK(holder.snapshot == kNoState, "a snapshot goes before its block");
  if (!is_root(holder.parent)) --entry(holder.parent).num_pooled_children;
  node_of_block_[static_cast<std::size_t>(holder.block.value)] = kNoNode;
  holder.block = kNoBlock;
  if (is_full(node)) log_.note_removed(holder.key);
}

// Parents before children.
template <class Name>
void PrefixIndex::name_pooled(Name&& name) const {
  std::vector<PrefixNode> pooled;
  for (const PrefixNode node : node_of_block_) {
    if (node != kNoNode && is_full(node)) pooled.push_back(node);
  }
  std::ranges::sort(pooled, {}, [this](PrefixNode node) { return position(node); });
  for (const PrefixNode node : pooled) {
    const PrefixNode parent = this->parent(node);
    const ChainKey* const before = is_root(parent) ? nullptr : &key_of(parent);
    name(key_of(node), before, tokens(node), log_.begins_event(before) ? adapter_in_salt(salt_of(node)) : "");
  }
}

void PrefixIndex::flush_events() noexcept {
  try {
    log_.flush([this](auto&& name) { name_pooled(name); });
  } catch (const std::bad_alloc&) {
    log_.lose();
  }
}

void PrefixIndex::set_below(PrefixNode node, TierKind tier, bool is_there) {
  const auto bit = static_cast<std::uint8_t>(tier);
  std::uint8_t& below = entry(node).below;
  below = static_cast<std::uint8_t>(is_there ? below | bit : below & ~bit);
}

TokenId* PrefixIndex::tokens_at(PrefixNode node) const {
  const auto index = static_cast<std::size_t>(node.value);
  return &tokens_[index / kNodesPerChunk][index % kNodesPerChunk * static_cast<std::size_t>(block_size_)];
}

std::span<const TokenId> PrefixIndex::tokens(PrefixNode node) const {
  return {tokens_at(node), static_cast<std::size_t>(entry(node).num_tokens)};
}

const ChainKey& PrefixIndex::key_of(PrefixNode node) const {
  return is_root(node) ? roots_[root_index(node)].key : entry(node).key;
}

const std::string& PrefixIndex::salt_of(PrefixNode node) const {
  while (!is_root(node))
    node = entry(node).parent;
  return roots_[root_index(node)].salt;
}

std::int32_t& PrefixIndex::num_children(PrefixNode node) {
  return is_root(node) ? roots_[root_index(node)].num_children : entry(node).num_children;
}

std::size_t PrefixIndex::alike_bucket(PrefixNode parent, TokenId first) const {
  const auto key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent.value)) << 32) |
                   static_cast<std::uint32_t>(first.value);
  return XXH3_64bits(&key, sizeof key) & (alike_buckets_.size() - 1);
}

void PrefixIndex::check_node(PrefixNode node) const {
  const Entry& checked = entry(node);
  QUIRE_CHECK(is_root(checked.parent) || is_full(checked.parent), "a parent is a full node in the tree");
  QUIRE_CHECK(checked.next_alike == kNoNode || entry(checked.next_alike).previous_alike == node,
              "those alike are linked both ways");
  QUIRE_CHECK(checked.block != kNoBlock || checked.below != 0 || checked.num_children > 0 || checked.num_users > 0,
              "a node is there for something");
  QUIRE_CHECK(checked.block == kNoBlock || node_of(checked.block) == node, "a node's block leads to it");
  QUIRE_CHECK(checked.num_pooled_children == 0 || checked.block != kNoBlock, "the pool holds whole chains");
  if (!is_full(node)) return;
  QUIRE_CHECK(checked.key == key_after(key_of(checked.parent), tokens(node)), "a key is that of the content");
  QUIRE_CHECK(find(checked.parent, checked.key, tokens(node)) == node, "a full node is found by its content");
}

void PrefixIndex::check_integrity() const {
  std::size_t num_hashed = 0;
  for (const PrefixNode head : buckets_) {
    for (PrefixNode node = head; node != kNoNode; node = entry(node).next_in_bucket)
      ++num_hashed;
  }
  std::size_t num_full = 0;
  std::int64_t num_nodes = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const PrefixNode node{static_cast<std::int32_t>(i)};
    if (entry(node).num_tokens == 0) continue;
    check_node(node);
    ++num_nodes;
    num_full += is_full(node) ? 1 : 0;
  }
  QUIRE_CHECK(num_full == num_hashed && num_nodes == num_nodes_, "full nodes and no others are in the hash table");
}

}  // namespace quire
