// Engine: the loop that turns queued requests into tokens; owns the scheduler, the KV cache and the sampler, and the
// thread `engine` that runs them. Public calls: Any thread, except step(), which is Engine thread only. Invariants: a
// submitted request gets exactly one finish event per choice; no request's failure affects another; after a device
// failure nothing more is computed and every request, present or future, ends with an error.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/thread_role.h"
#include "core/draft/drafter.h"
#include "core/engine/figures/engine_stats.h"
#include "core/engine/figures/engine_view.h"
#include "core/engine/figures/step_trace.h"
#include "core/engine/request_queue.h"
#include "core/engine/slot_orders.h"
#include "core/engine/step_turns.h"
#include "core/executor/executor.h"
#include "core/kv/index/cache_events.h"
#include "core/kv/kv_options.h"
#include "core/kv/tiers/shared_store.h"
#include "core/model/layers/model.h"
#include "core/model/layers/model_identity.h"
#include "core/request/speculation_options.h"
#include "core/sched/scheduler_options.h"

namespace quire {

struct EngineOptions {
  SchedulerOptions scheduler;
  KvCacheOptions kv_cache;  // the storage's layout decides block size and number of blocks
  QueueOptions queue;
  // Identity of the model and the draft model; the engine adds its arithmetic and block layout.
  ModelIdentity identity;
  SharedStoreFactory shared_store;               // store of blocks shared with other processes; empty: none
  std::shared_ptr<CacheEventSink> cache_events;  // receives changes of the prefix cache; null: they are not recorded
  SpeculationOptions speculation;                // default of requests without one
  DrafterFactory make_drafter;                   // replaces the methods' own drafters; empty: none
  std::int64_t num_states = 0;                   // recurrent states, snapshots included; 0: three per sequence
  std::int64_t num_window_parts = 0;             // window parts; 0: as many as blocks
  std::int64_t max_json_spaces = 40;             // longest run of whitespace in JSON that a grammar allows
  bool keeps_slots = false;                      // conversations can be saved and restored by slot number
  std::uint64_t seed = 0;                        // base seed of requests without one; 0: from the operating system
  Backend* encoder = nullptr;                    // runs the encoders of media; must outlive the engine; null: no media
  std::int64_t media_bytes = std::int64_t{256} << 20;  // cache of encoded media rows, in bytes
  std::shared_ptr<StepTurns> turns;  // shared by the engines of one process; null: this one computes alone
};

// Limits for requests, known from the start.
struct EngineLimits {
  std::int64_t max_model_len = 0;  // prompt + max_tokens
  std::int32_t max_num_choices = 0;
  std::string fingerprint{};  // model, its arithmetic and version, 32 hexadecimal digits
};

class Engine {
 public:
  // Throws StartupError if the disk tier's directory cannot be used.
  Engine(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage, std::vector<TokenId> end_of_generation,
         const EngineOptions& options);
  // The same engine over any executor.
  Engine(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation, const EngineOptions& options);
  ~Engine();  // stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts the thread. At most once.
  void start();
  // Refuses new requests and finishes the present ones; at the deadline it ends the rest with an error. Returns
  // immediately.
  void drain(Clock::time_point deadline);
  // Waits until drained; false if `until` came first.
  bool wait_drained(Clock::time_point until);
  // Cuts all remaining requests and joins the thread. Idempotent.
  void stop();

  RequestQueue& queue();
  const EngineLimits& limits() const;
  EngineStats stats() const;
  // Records each step, for traces.
  StepTrace& step_trace();
  // The last steps and the sequences, for a status page. Any thread.
  EngineView::Reading view();
  // Sets the queue's bounds and the weights of keys, from the next request on. Any thread.
  void reconfigure(const QueueOptions& queue, std::map<std::string, double> key_weights);
  // Saves, restores or erases a slot, beside the requests. Any thread.
  void order_slot(SlotOrder order);
  // False once the device has failed: readiness turns red and stays so.
  bool healthy() const;

  // Runs the loop once on the calling thread, for tests and benchmarks. `now`: the time for deadlines and ages. Returns
  // false if there was nothing to do.
  bool step(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
