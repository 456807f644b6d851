// DiskTier: content of nodes as records in a folder, which outlives the process. Engine thread only; the folder's
// thread alone touches files. Invariants: the folder's records hold at most max_bytes; a record belongs to a node whose
// parent and tokens were compared, never to a key alone. If memory fails, a record is not kept: nothing else is lost,
// and only read() throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/kv/tiers/record_tier.h"
#include "core/kv/tiers/tier_folder.h"

namespace quire {

struct DiskTierOptions {
  std::filesystem::path directory;
  std::int64_t max_bytes = std::int64_t{8} << 30;
  std::int64_t max_queued_bytes = std::int64_t{256} << 20;  // waiting to be written; more is not taken
  ChainKey fingerprint{};                                   // identifies model, arithmetic and block layout
  std::int32_t block_size = 16;
  std::chrono::milliseconds pause{60'000};  // time without writing after a failed write
};

class DiskTier final : public RecordTier {
 public:
  // `ready` is called on the folder's thread when receive() may have something to give. Throws StartupError where the
  // folder cannot be used.
  DiskTier(const DiskTierOptions& options, std::function<void()> ready);

  // False until the records of earlier processes are found: nothing is written or read before.
  bool is_loaded() const { return is_loaded_; }
  std::int64_t payload_bytes(PrefixNode node) const override { return writings_.at(node).payload_bytes; }
  bool can_take(std::int64_t payload_bytes) override;
  bool makes_room(std::int64_t payload_bytes, std::span<const PrefixNode> kept) const override {
    return order_.makes_room(payload_bytes, options_.max_bytes, kept);
  }
  bool put(PrefixIndex& index, PrefixNode node, BlockPayload payload) override;
  void read(PrefixIndex& index, PrefixNode node) override;
  // Waits until the folder has finished its tasks; false if `until` came first.
  bool wait_idle(std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max()) override {
    return folder_.wait_idle(until);
  }
  void drop_writes() override { folder_.drop_writes(); }
  bool can_write() const { return folder_.can_write(); }
  std::int64_t num_bytes() const { return order_.num_bytes(); }
  std::int64_t num_records() const { return order_.size(); }
  std::uint64_t num_reads() const { return num_reads_; }  // begun so far

 private:
  void begin_to_write(PrefixIndex& index, PrefixNode node, BlockPayload payload);
  void fetch_events(TierEvents& out, std::size_t most) noexcept override { folder_.take_events(out, most); }
  void take_event(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived) override;
  bool add_found(PrefixIndex& index, const TierEvent& event);
  bool add_child(PrefixIndex& index, PrefixNode parent, const TierEvent& event, std::span<const TokenId> tokens);
  bool add_below(PrefixIndex& index, PrefixNode parent, const TierEvent& event);
  void take_read(PrefixIndex& index, TierEvent& event, std::vector<Arrived>& arrived);
  bool make_room(PrefixIndex& index, std::int64_t num_bytes);
  void drop(PrefixNode node) override { writings_.erase(node); }

  const DiskTierOptions options_;
  struct Writing {
    std::uint64_t number;
    std::int64_t payload_bytes;
  };
  std::unordered_map<PrefixNode, Writing> writings_;  // how each record was written
  std::uint64_t num_reads_ = 0;
  bool is_loaded_ = false;
  TierFolder folder_;  // last member: its thread calls `ready` at once
};

}  // namespace quire
