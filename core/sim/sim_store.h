// SimStore: the store shared by the replicas of a simulated fleet: keys and tokens of blocks, with LRU eviction.
// SimStoreClient: a replica's connection to it, with a price for each question and each block, one after another. One
// thread at a time. Invariant: a replica finds what was written by its own time, although replicas are simulated one
// after another; an answer comes once its clock has reached the answer's time.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <unordered_map>

#include "core/kv/tiers/shared_store.h"
#include "core/sim/simulation.h"

namespace quire::sim {

class SimStore {
 public:
  explicit SimStore(std::int64_t max_records) : max_records_(max_records) {}

  // The record if it was written by `now_s`; null otherwise.
  const TierRecord* find(const ChainKey& key, double now_s);
  void put(TierRecord record, double written_s);

 private:
  struct Kept {
    TierRecord record;
    double written_s;
  };
  struct KeyHash {
    std::size_t operator()(const ChainKey& key) const { return key.low; }
  };
  const std::int64_t max_records_;
  std::list<Kept> kept_;  // most recently used last
  std::unordered_map<ChainKey, std::list<Kept>::iterator, KeyHash> places_;
};

class SimStoreClient final : public SharedStore {
 public:
  // `clock_s` is the replica's clock. All must outlive it.
  SimStoreClient(SimStore& store, const SimOptions& options, const double& clock_s, SimReport& report)
      : store_(store), options_(options), clock_s_(clock_s), report_(report) {}

  bool is_up() const override { return true; }
  bool can_take(std::int64_t /*payload_bytes*/) override { return true; }
  void write(TierEvents write) noexcept override;
  void read(TierEvents read) noexcept override;
  void look_up(KeyLookUps look_up) noexcept override;
  void take_events(TierEvents& out, std::size_t most) noexcept override;
  void take_look_ups(KeyLookUps& out) noexcept override;
  bool wait_idle(std::chrono::steady_clock::time_point /*until*/) override { return true; }
  void drop_writes() override {}
  SharedStoreStats stats() const override { return {.is_up = 1}; }

  // Time of the next answer; infinity: nothing was asked.
  double next_answer_s() const;

 private:
  // Time at which a block that is requested now has been transferred, after those before it.
  double pass_block();
  double latency_s() const { return options_.shared_latency_ms / 1000.0; }

  SimStore& store_;
  const SimOptions& options_;
  const double& clock_s_;
  SimReport& report_;
  double busy_until_s_ = 0.0;
  TierEvents events_;  // in the order of their answers
  std::list<double> event_times_;
  KeyLookUps look_ups_;
  std::list<double> look_up_times_;
};

}  // namespace quire::sim
