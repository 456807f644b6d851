// TierIndex: which record of a tier below the pool holds which tokens after which other record. One thread at a time.
// Exact: parent and tokens are compared, a hash only finds the candidates. Records without successors leave first, the
// least recently used of them before the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/ids.h"

namespace quire {

using TierId = std::uint64_t;
inline constexpr TierId kNoTierId = 0;

class TierIndex {
 public:
  struct Node {
    TierId id = kNoTierId;
    TierId parent = kNoTierId;  // kNoTierId: a first block, under `salt`
    std::string salt;
    std::vector<TokenId> tokens;
    std::int64_t num_bytes = 0;  // that count against the tier's bound; 0 until it holds its content
    std::int32_t num_children = 0;
    std::uint64_t last_use = 0;
  };

  // `removed` is called with each id that leaves, while the node is still there.
  explicit TierIndex(std::function<void(TierId)> removed) : removed_(std::move(removed)) {}

  Node* find(TierId parent, const std::string& salt, std::span<const TokenId> tokens);  // counts as a use
  Node* find(TierId id);
  bool contains(TierId id) const { return nodes_.contains(id); }
  // `id` is new, its parent is there (or kNoTierId), and nothing equal is.
  Node& add(TierId id, TierId parent, const std::string& salt, std::span<const TokenId> tokens);
  void set_bytes(Node& node, std::int64_t num_bytes);
  void remove(TierId id);  // with everything after it
  // Removes records until `num_bytes` more fit below `bound`; false where too few can leave.
  bool make_room(std::int64_t num_bytes, std::int64_t bound);

  std::int64_t num_bytes() const { return num_bytes_; }
  std::int64_t size() const { return static_cast<std::int64_t>(nodes_.size()); }

 private:
  static std::uint64_t key_of(TierId parent, const std::string& salt, std::span<const TokenId> tokens);
  void touch(Node& node);
  bool can_leave(const Node& node) const { return node.num_children == 0 && node.num_bytes > 0; }

  const std::function<void(TierId)> removed_;
  std::unordered_map<TierId, std::unique_ptr<Node>> nodes_;
  std::unordered_multimap<std::uint64_t, TierId> by_content_;
  std::set<std::pair<std::uint64_t, TierId>> leaving_;  // those that can, by last use
  std::uint64_t num_uses_ = 0;
  std::int64_t num_bytes_ = 0;
};

}  // namespace quire
