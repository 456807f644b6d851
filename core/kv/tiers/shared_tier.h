// SharedTier: content of nodes as records of a SharedStore. Engine thread only. It knows only its own writes and the
// store's answers, and the store may drop records at any time: a record is found by asking for its key, and accepted
// once the fingerprint, the parent's key and the tokens in it are compared. Invariant: at most max_known nodes are
// remembered; the least recently used, ends of chains first, are forgotten.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/kv/tiers/record_tier.h"
#include "core/kv/tiers/shared_store.h"

namespace quire {

struct SharedTierOptions {
  ChainKey fingerprint{};  // identifies model, arithmetic and block layout
  std::int32_t block_size = 16;
  std::vector<std::int64_t> payload_bytes{};  // possible sizes of a record's payload, ascending
  std::int64_t max_known = 1 << 16;           // each node counts as one in the order
};

class SharedTier final : public RecordTier {
 public:
  SharedTier(const SharedTierOptions& options, std::unique_ptr<SharedStore> store);

  std::int64_t payload_bytes(PrefixNode node) const override { return payload_bytes_.at(node); }
  bool can_take(std::int64_t payload_bytes) override { return store_->can_take(payload_bytes); }
  bool makes_room(std::int64_t /*payload_bytes*/, std::span<const PrefixNode> kept) const override {
    return order_.makes_room(1, options_.max_known, kept);
  }
  bool put(PrefixIndex& index, PrefixNode node, BlockPayload payload) override;
  void read(PrefixIndex& index, PrefixNode node) override;
  bool receive(PrefixIndex& index, std::vector<Arrived>& arrived) override;
  bool wait_idle(std::chrono::steady_clock::time_point until) override { return store_->wait_idle(until); }
  void drop_writes() override { store_->drop_writes(); }

  const ChainKey& fingerprint() const { return options_.fingerprint; }
  bool is_up() const { return store_->is_up(); }
  // Asks which of these keys the store has; the answer has the id that is returned. Throws where memory fails.
  std::uint64_t look_up(std::vector<ChainKey> keys);
  void take_look_ups(KeyLookUps& out) noexcept { store_->take_look_ups(out); }
  // Size of the payload in a record of `record_bytes` bytes; nothing if no block has that size.
  std::optional<std::int64_t> payload_in(std::int64_t record_bytes, std::size_t num_media) const;
  // The store has such a record of a full node. False where it is not remembered.
  bool add_found(PrefixIndex& index, PrefixNode node, std::int64_t payload_bytes);

  std::int64_t num_known() const { return order_.size(); }
  SharedStoreStats stats() const { return store_->stats(); }

 private:
  bool remember(PrefixIndex& index, PrefixNode node, std::int64_t payload_bytes, bool is_there);
  void forget_if_failed(PrefixIndex& index);
  void fetch_events(TierEvents& out, std::size_t most) noexcept override { store_->take_events(out, most); }
  void take_event(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) override;
  void take_read(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived);
  void drop(PrefixNode node) override { payload_bytes_.erase(node); }

  const SharedTierOptions options_;
  std::unordered_map<PrefixNode, std::int64_t> payload_bytes_;
  std::uint64_t num_look_ups_ = 0;
  std::uint64_t num_failures_ = 0;  // store failures seen so far
  const std::unique_ptr<SharedStore> store_;
};

}  // namespace quire
