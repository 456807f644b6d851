// Tiers: the memories below an engine's pool of blocks (host memory, disk, a shared store), and the LowerTier that
// moves blocks between them and the pool. Engine thread only. Without any tier, nothing is restored, moved or written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/figures/engine_stats.h"
#include "core/executor/executor.h"
#include "core/kv/kv_cache.h"
#include "core/kv/kv_options.h"
#include "core/kv/moves/lower_tier.h"
#include "core/kv/tiers/disk_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "core/kv/tiers/shared_tier.h"
#include "core/sched/scheduler.h"

namespace quire {

struct TiersOptions {
  KvCacheOptions kv_cache;
  SharedStoreFactory shared_store;  // empty: none
  ChainKey fingerprint;             // of the engine's blocks
  bool keeps_slots = false;         // slots move blocks, even if there is no tier
  std::function<void()> wake;       // called from other threads: begin_step() has work
};

class Tiers {
 public:
  // Throws StartupError if the disk tier's directory cannot be used. All must outlive it.
  Tiers(KvCache& kv, Scheduler& scheduler, Executor& executor, const TiersOptions& options);

  // Moves the blocks; null: there is nothing to move them to.
  LowerTier* lower() const { return lower_.get(); }

  // Fetches cached blocks of a waiting sequence, which starts once they are in the pool. Called on a prompt's arrival;
  // begin_step() repeats it for the next sequences to start and preempted ones.
  void restore(Sequence& sequence, Clock::time_point now);
  void begin_step(Clock::time_point now);
  // Block moves of a step: taken when it is planned, finished when it is done or dropped.
  void take_moves(std::vector<BlockMove>& moves) {
    if (lower_ != nullptr) lower_->take_moves(moves);
  }
  void finish_moves(std::span<const BlockMove> moves, const MoveTimes& times) {
    if (lower_ != nullptr) lower_->finish_moves(moves, times);
  }
  // Time of moving a block out and back; nothing without a tier.
  std::optional<double> swap_seconds() const { return lower_ != nullptr ? lower_->swap_seconds() : std::nullopt; }
  bool is_restoring() const { return lower_ != nullptr && lower_->is_restoring(); }
  bool is_moving() const { return lower_ != nullptr && lower_->is_moving(); }
  std::optional<Clock::time_point> next_deadline() const {
    return lower_ != nullptr ? lower_->next_deadline() : std::nullopt;
  }

  // Writes some cached blocks to the disk; false after the last one, and without room.
  bool persist_some();
  // Called at the engine's end: waits for room until `until`, then until all is written; writes that are still queued
  // at `until` are dropped.
  bool wait_for_room(Clock::time_point until) { return lower_ != nullptr && lower_->wait_for_room(until); }
  void end_persisting(Clock::time_point until) {
    if (lower_ != nullptr) lower_->end_persisting(until);
  }

  void report(EngineStats& stats) const;

 private:
  Scheduler& scheduler_;
  const std::int64_t host_bytes_;
  const std::int64_t disk_bytes_;
  std::unique_ptr<HostTier> host_;  // null: no such tier
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<SharedTier> shared_;
  std::unique_ptr<LowerTier> lower_;
};

}  // namespace quire
