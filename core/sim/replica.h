// Replica: a simulated engine: the real scheduler and cache, with step prices in place of the model. One thread at
// a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/draft/acceptance.h"
#include "core/kv/kv_cache.h"
#include "core/kv/moves/lower_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "core/sched/scheduler.h"
#include "core/sim/sim_encoder.h"
#include "core/sim/sim_store.h"
#include "core/sim/simulation.h"

namespace quire::sim {

// Part of a request that a replica computes.
enum class Stage : std::uint8_t { kWhole, kPrompt, kAnswer };

// A prompt that has been computed and is in the store by `time_s`.
struct HandOver {
  TraceRequest request;
  std::int64_t number = 0;
  double time_s = 0.0;
};

class Replica {
 public:
  // number: index in the fleet. store: shared by all replicas; null: none. It must outlive them.
  Replica(const SimOptions& options, std::int32_t number, std::int64_t num_blocks, SimReport& report, SimStore* store);

  // Begins all steps before `time_s`, and ends those that end by then.
  void run_until(double time_s);
  bool has_work() const { return in_step_ || !lives_.empty() || !held_.empty(); }
  // Time at which its step ends or, without a step, at which it can begin one; infinity: it has nothing to do.
  double next_event_s() const;
  // Begins a step if it can begin one by `time_s`.
  void begin_at(double time_s);
  bool is_computing() const { return in_step_ && !plan_.empty(); }
  // From `time_s` on computing takes `slowdown` times as long as alone, the rest of a running step included.
  void slow_down(double time_s, double slowdown);
  // A request arrives at `time_s`; run_until() has been called up to then. It is taken in between two steps, as in the
  // engine, and may end the current step early.
  void arrive(const TraceRequest& request, std::int64_t number, double time_s, Stage stage = Stage::kWhole);
  // Prompts that were computed since the last call, in the order of their times.
  std::vector<HandOver> take_handed() { return std::exchange(handed_, {}); }

  // Load for the router: requested tokens that are not computed yet.
  std::int64_t load() const { return load_; }
  std::int64_t num_tokens_cached(const std::vector<TokenId>& prompt);
  const KvCache& kv() const { return kv_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  static constexpr double kDraftPrior = 0.5;  // acceptance assumed before the first measurement
  struct Live : Sequence {
    double arrival_s = 0.0;
    double last_token_s = 0.0;
    std::int32_t num_left = 0;  // output tokens
    DraftAcceptance drafts_accepted{kDraftPrior};
    KeyShare* share = nullptr;
    Stage stage = Stage::kWhole;
    TraceRequest traced{};  // set if only the prompt is computed here
  };
  // A prompt whose blocks are on their way to the store.
  struct Held {
    LowerTier::Publication publication;
    HandOver hand_over;
  };

  void begin_step();
  void end_step();
  void finish_step();
  void end_early(double time_s);
  void end_slice(double time_s);
  double next_scatter();
  double seconds_to_compute(const StepTerms& terms) const {
    return slowdown_ * scatter_ * options_.price.seconds(terms);
  }
  double wait_for_store() const;
  void restore(Sequence& sequence);
  bool can_begin() const { return !in_step_ && (!lives_.empty() || !held_.empty() || is_publishing()); }
  // Blocks of the last step may still be on their way to the shared store when no request is left.
  bool is_publishing() const { return shared_ && lower_tier_->num_to_publish() > 0; }
  std::int64_t move_blocks();  // returns the number from the tier below
  void keep_step();
  void note_started(const Live& live);
  void propose_drafts();
  void verify_drafts();
  void take_token(Live& live);
  void hold(Live& live);
  void hand_over();

  const SimOptions& options_;
  SimReport& report_;
  KvCache kv_;
  HostTier tier_;
  SimStoreClient* client_ = nullptr;     // owned by shared_
  std::optional<SharedTier> shared_;     // absent: no shared store
  std::optional<LowerTier> lower_tier_;  // absent: no tier
  Scheduler scheduler_;
  SimEncoder encoder_;
  std::vector<Live*> arrived_;  // arrived during the step
  StepPlan plan_;
  StepOutput output_;
  std::mt19937 random_;              // decides which drafts are accepted
  double restore_s_ = 0.0;           // the step's time to load blocks from the tier below
  double slowdown_ = 1.0;            // factor for steps of other replicas on the machine
  double scatter_ = 1.0;             // factor of the step
  EncoderSlice slice_;               // the encoder's beside the step
  double least_clock_s_ = 0.0;       // earliest end of that slice for an arrival
  std::size_t next_of_streams_ = 0;  // in the options' scatter
  std::size_t next_of_prompts_ = 0;
  bool in_step_ = false;
  double clock_s_ = 0.0;  // start of the step, or end of the last one
  std::int64_t load_ = 0;
  std::unordered_map<const Live*, std::unique_ptr<Live>> lives_;
  std::list<Held> held_;
  std::vector<HandOver> handed_;
};

}  // namespace quire::sim
