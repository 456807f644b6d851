// Engine::Impl: the engine's parts. Private to core/engine; Engine thread only, except where a member says otherwise.
// Its functions are in engine.cpp (thread), engine_requests.cpp (arrivals and ends) and engine_step.cpp (the step).
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/generation.h"
#include "core/engine/stats_board.h"
#include "core/engine/step_input.h"
#include "core/engine/step_trace.h"
#include "core/kv/disk_tier.h"
#include "core/kv/host_tier.h"
#include "core/kv/kv_cache.h"
#include "core/kv/lower_tier.h"
#include "core/sampling/sampler.h"
#include "core/sched/scheduler.h"

namespace quire {

class Engine::Impl {
 public:
  Impl(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage, std::vector<TokenId> end_of_generation,
       const EngineOptions& options);

  void run();
  bool step(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  // Every request that is left, queued ones included, ends with an error.
  void shut_down() QUIRE_REQUIRES(kEngineThread);
  void cut_all(FinishReason reason, const Error& error) QUIRE_REQUIRES(kEngineThread);

  // Any thread.
  RequestQueue queue;
  StatsBoard board;
  StepTrace trace;
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
  // What is wanted of one entry's rows.
  struct RowPlan {
    Generation* generation;
    WantedRows wanted;
    std::int64_t first_position;  // of the first wanted row
    std::int64_t first_index;     // of it, among the step's wanted rows of its kind
    bool is_last;                 // the last wanted row is the sequence's last token
  };
  using Deadlines = std::set<std::pair<Clock::time_point, LiveRequest*>>;

  // engine_requests.cpp
  void receive(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void accept(Submission submission, Clock::time_point now);
  std::unique_ptr<Generation> make_generation(LiveRequest& live, std::int32_t choice);
  void abort(const Abort& abort);
  void cut_overdue(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void note_started(Clock::time_point now);
  void restore_blocks(Sequence& sequence);
  void move_blocks();
  void end(Generation& generation, FinishInfo info);
  void end_request(LiveRequest& live, FinishReason reason, const std::optional<Error>& error);
  void erase(LiveRequest& live);
  FinishInfo finish_info(const Generation& generation, FinishReason reason) const;
  std::optional<Clock::time_point> next_deadline() const;

  // engine_step.cpp
  void begin_phases();
  void end_phase(StepPhase phase);
  void count_step();
  void note_step();
  void trace_entries();
  void build_input();
  void forward();
  void pool_hidden_states(MatrixView hidden);
  void collect_prompt_logprobs();
  void prepare_rows();
  void add_sample_row(Generation& generation, std::span<float> logits, std::span<const std::uint32_t> mask,
                      bool is_shared);
  static bool draws_token(const RowPlan& plan);
  void fill_masks(std::size_t vocab_size);
  bool fill_mask(Generation& generation, std::span<std::uint32_t> mask);
  void commit(Clock::time_point began);
  void fail(Generation& generation, Error error);
  void take_token(Generation& generation, SampleRow& row);
  void append(Generation& generation, TokenId token);
  void append_forced(Generation& generation);
  bool is_stop_token(const Generation& generation, TokenId token) const;
  void finish_prompt_only(Generation& generation);
  void emit();
  void fail(const std::string& what) QUIRE_REQUIRES(kEngineThread);
  void publish();
  void note_rate() QUIRE_REQUIRES(kEngineThread);

  Model& model_;
  Backend& backend_;
  const std::unique_ptr<KvStorage> storage_;
  const std::vector<TokenId> end_of_generation_;
  const EngineOptions options_;
  std::uint64_t next_seed_;

  KvCache kv_;
  Scheduler scheduler_;
  std::unique_ptr<HostTier> host_;  // null: no such tier
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<LowerTier> lower_tier_;
  Sampler sampler_;
  StepPlan plan_;
  StepOutput output_;
  StepInput input_;
  std::vector<RowPlan> rows_wanted_;
  MatrixView logits_;
  std::vector<SampleRow> rows_;
  std::vector<Generation*> row_owners_;
  std::vector<std::uint32_t> masks_;  // [rows_wanted, words], of those with a grammar
  std::vector<bool> has_mask_;        // [rows_wanted]
  std::vector<Generation*> touched_;  // have something to send

  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> live_;
  Deadlines deadlines_;
  Deadlines queue_deadlines_;
  std::vector<Submission> submissions_;
  std::vector<Abort> aborts_;
  std::int64_t num_sequences_made_ = 0;

  EngineStats stats_;
  struct Window {
    double busy_s = 0.0;  // in steps
    std::uint64_t num_tokens = 0;
    std::uint64_t num_started = 0;
    std::uint64_t num_prompt_tokens = 0;
  };
  Window window_;           // since the last look at the rate
  ServiceRate rate_;        // of starting what waits
  StepRecord step_record_;  // of the step that runs; its entries only while it is traced
  Clock::time_point phase_began_{};
};

}  // namespace quire
