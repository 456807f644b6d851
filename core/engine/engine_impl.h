// Engine::Impl: the engine's parts. Private to core/engine; Engine thread only, except where a member says otherwise.
// Its functions are in engine.cpp (thread), engine_requests.cpp (arrivals and ends) and engine_step.cpp (the step).
// Invariant: with a depth of two, a step may be in flight when a function begins, and `in_flight_` names it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/draft/drafting.h"
#include "core/engine/engine.h"
#include "core/engine/engine_view.h"
#include "core/engine/generation.h"
#include "core/engine/held_ends.h"
#include "core/engine/prompt_media.h"
#include "core/engine/slots.h"
#include "core/engine/stats_board.h"
#include "core/engine/step.h"
#include "core/engine/step_meter.h"
#include "core/engine/tiers.h"
#include "core/executor/executor.h"
#include "core/kv/kv_cache.h"
#include "core/sched/scheduler.h"

namespace quire {

inline constexpr const char* kCutByDrain = "The server shut down before the request was finished.";

class Engine::Impl {
 public:
  Impl(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation, const EngineOptions& options);

  void run();
  bool step(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  // Every request that is left, queued ones included, ends with an error.
  void shut_down() QUIRE_REQUIRES(kEngineThread);
  void cut_all(FinishReason reason, const SharedError& error) QUIRE_REQUIRES(kEngineThread);

  // Any thread.
  RequestQueue queue;
  StatsBoard board;
  StepTrace trace;
  EngineView view;
  SlotOrders slot_orders;
  const bool keeps_slots;
  std::atomic<bool> healthy{true};
  std::atomic<bool> stopping{false};
  std::atomic<Clock::rep> drain_deadline{kNotDraining};  // ticks since the clock's epoch
  EngineLimits limits;
  std::mutex drained_mutex;
  std::condition_variable drained_changed;
  bool drained = false;

  static constexpr Clock::rep kNotDraining = std::numeric_limits<Clock::rep>::max();
  std::thread thread;

 private:
  using Turn = std::optional<StepTurns::Turn>;  // the turn of a step and of the rounds before it, once taken
  using Deadlines = std::set<std::pair<Clock::time_point, LiveRequest*>>;

  // engine.cpp
  void loop() QUIRE_REQUIRES(kEngineThread);
  std::optional<Clock::time_point> next_deadline() const QUIRE_REQUIRES(kEngineThread);

  // engine_requests.cpp
  void receive(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void accept(Submission submission, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  Result<void> admit(Submission submission, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  Result<void> check(const Request& request) const QUIRE_REQUIRES(kEngineThread);
  std::unique_ptr<LiveRequest> make_live(Submission& submission) QUIRE_REQUIRES(kEngineThread);
  std::unique_ptr<Generation> make_generation(LiveRequest& live, std::int32_t choice) QUIRE_REQUIRES(kEngineThread);
  void abort(const Abort& abort) QUIRE_REQUIRES(kEngineThread);
  void cut_overdue(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void note_started(const StepPlan& plan, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void end(Generation& generation, FinishInfo info) QUIRE_REQUIRES(kEngineThread);
  void end_request(LiveRequest& live, FinishReason reason, const SharedError& error) QUIRE_REQUIRES(kEngineThread);
  SharedError drained_error() const QUIRE_REQUIRES(kEngineThread);
  void erase(LiveRequest& live) QUIRE_REQUIRES(kEngineThread);

  // engine_step.cpp, in the order of a step
  bool plan(Step& step, Clock::time_point now, Turn& turn) QUIRE_REQUIRES(kEngineThread);
  void take_turn(Step& step, Turn& turn) QUIRE_REQUIRES(kEngineThread);
  void encode(const std::optional<PromptMedia::Wanted>& media, double seconds) QUIRE_REQUIRES(kEngineThread);
  bool submit(Step& step) QUIRE_REQUIRES(kEngineThread);
  void end_step(Step& step, const SharedError& error) QUIRE_REQUIRES(kEngineThread);
  void draw(Step& step) QUIRE_REQUIRES(kEngineThread);
  void add_draws(Step& step, std::size_t part) QUIRE_REQUIRES(kEngineThread);
  void add_forks(Step& step, std::size_t parent) QUIRE_REQUIRES(kEngineThread);
  void add_draw(Step& step, std::size_t part, std::int64_t logit_row) QUIRE_REQUIRES(kEngineThread);
  bool finish(Step& step) QUIRE_REQUIRES(kEngineThread);
  void commit(Step& step, StepOutput& output) QUIRE_REQUIRES(kEngineThread);
  bool fork(Step& step, const StepPart& part) QUIRE_REQUIRES(kEngineThread);
  void commit_part(const Step& step, StepPart& part, std::int64_t num_computed, StepOutput& output)
      QUIRE_REQUIRES(kEngineThread);
  void emit(const Step& step) QUIRE_REQUIRES(kEngineThread);
  void finish_entries(Step& step, StepOutput& output) QUIRE_REQUIRES(kEngineThread);
  void wait_in_vain(Step& step, const std::string& known) QUIRE_REQUIRES(kEngineThread);
  void persist(Clock::time_point until) QUIRE_REQUIRES(kEngineThread);
  void device_failed(const std::string& what) QUIRE_REQUIRES(kEngineThread);
  void refuse_all(const char* message, const char* code) QUIRE_REQUIRES(kEngineThread);
  void publish() QUIRE_REQUIRES(kEngineThread);
  void look_at_device(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void list_sequences(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);

  void forget_drafts(Step& step) QUIRE_REQUIRES(kEngineThread);
  void verify_drafts(Step& step, StepOutput& output) QUIRE_REQUIRES(kEngineThread);
  void take_draws(const Step& step, const StepPart& part, StepOutput& output) QUIRE_REQUIRES(kEngineThread);

  const std::unique_ptr<Executor> executor_ QUIRE_POINTEE_GUARDED_BY(kEngineThread);
  const std::vector<TokenId> end_of_generation_;
  const EngineOptions options_;
  const ModelIdentity identity_;
  const ChainKey fingerprint_;  // its key
  const SharedError no_memory_ = std::make_shared<const Error>(out_of_memory());
  StepTurns::Member turns_ QUIRE_GUARDED_BY(kEngineThread){options_.turns.get(), &queue.interrupt()};
  std::uint64_t next_seed_ QUIRE_GUARDED_BY(kEngineThread);

  KvCache kv_ QUIRE_GUARDED_BY(kEngineThread);
  Scheduler scheduler_ QUIRE_GUARDED_BY(kEngineThread);
  Drafting drafting_ QUIRE_GUARDED_BY(kEngineThread);
  PromptMedia media_ QUIRE_GUARDED_BY(kEngineThread);
  Tiers tiers_ QUIRE_GUARDED_BY(kEngineThread);
  HeldEnds held_ends_ QUIRE_GUARDED_BY(kEngineThread);
  Slots slots_ QUIRE_GUARDED_BY(kEngineThread);
  std::array<Step, 2> steps_ QUIRE_GUARDED_BY(kEngineThread);
  Step* in_flight_ QUIRE_GUARDED_BY(kEngineThread) = nullptr;  // submitted, to be finished in the next call of step()
  Step* latest_ QUIRE_GUARDED_BY(kEngineThread) = nullptr;     // the last submitted step that is not done

  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> live_ QUIRE_GUARDED_BY(kEngineThread);
  Deadlines deadlines_ QUIRE_GUARDED_BY(kEngineThread);
  Deadlines queue_deadlines_ QUIRE_GUARDED_BY(kEngineThread);
  std::vector<Submission> submissions_ QUIRE_GUARDED_BY(kEngineThread);
  std::vector<Abort> aborts_ QUIRE_GUARDED_BY(kEngineThread);
  std::int64_t num_sequences_made_ QUIRE_GUARDED_BY(kEngineThread) = 0;

  EngineStats stats_ QUIRE_GUARDED_BY(kEngineThread);
  Clock::time_point next_look_at_device_ QUIRE_GUARDED_BY(kEngineThread);
  StepMeter meter_ QUIRE_GUARDED_BY(kEngineThread);
};

}  // namespace quire
