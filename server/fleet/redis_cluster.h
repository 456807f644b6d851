// Key distribution of a Redis or Valkey cluster: the slot of a key, the node of a slot, and redirections to another
// node. Value types; any thread. Invariant: unreadable lines of a node's reply are skipped.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

constexpr std::size_t kNumRedisSlots = 16384;

struct RedisAddress {
  std::string host;
  std::string port;
  auto operator<=>(const RedisAddress&) const = default;
};

// Keys whose text between the first `{` and the next `}` is the same, if there is any, have the same slot.
std::uint16_t redis_slot(std::string_view key);

// "MOVED SLOT HOST:PORT": the node that has the slot; "ASK SLOT HOST:PORT": the node that may have this key already.
struct RedisRedirection {
  bool is_for_good = false;  // MOVED
  std::uint16_t slot = 0;
  RedisAddress address;  // without a host: the node that redirected
};
std::optional<RedisRedirection> parse_redirection(std::string_view error);

// Maps the slots of a cluster to its nodes.
class RedisSlotMap {
 public:
  // Parses the CLUSTER NODES reply of the node `asked`. `by_name`: connect to nodes by host name where they have one.
  // Returns nothing if no node has a slot.
  static std::optional<RedisSlotMap> parse(std::string_view nodes, const RedisAddress& asked, bool by_name);

  const RedisAddress* find(std::uint16_t slot) const;  // null: no node has it
  void move(std::uint16_t slot, const RedisAddress& address);
  const std::vector<RedisAddress>& nodes() const { return nodes_; }  // nodes with slots, and replicas

 private:
  std::int16_t place_of(const RedisAddress& address);

  std::vector<RedisAddress> nodes_;
  std::vector<std::int16_t> owners_ = std::vector<std::int16_t>(kNumRedisSlots, -1);  // index into nodes_ by slot
};

}  // namespace quire
