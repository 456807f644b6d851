// Engine: the loop that turns queued requests into tokens; owns the scheduler, the KV cache and the sampler, and the
// thread `engine` that runs them. Public calls: Any thread, except step(), which is Engine thread only. Invariants: a
// submitted request gets exactly one finish event per choice; one request's fate never touches another's; after a
// device failure nothing more is computed and every request, present or future, ends with an error.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/thread_role.h"
#include "core/draft/drafter.h"
#include "core/engine/engine_stats.h"
#include "core/engine/engine_view.h"
#include "core/engine/executor.h"
#include "core/engine/request_queue.h"
#include "core/engine/slot_orders.h"
#include "core/engine/step_trace.h"
#include "core/engine/step_turns.h"
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
  // Of the model and the draft model; the engine adds its arithmetic and blocks.
  ModelIdentity identity;
  SharedStoreFactory shared_store;               // of blocks that other processes use too; empty: there is none
  std::shared_ptr<CacheEventSink> cache_events;  // takes what changes in the prefix cache; null: it is not recorded
  SpeculationOptions speculation;                // of requests that say nothing else
  DrafterFactory make_drafter;                   // in place of the methods' own drafters; empty: those
  std::int64_t num_states = 0;        // of a model with recurrent layers, snapshots among them; 0: three a sequence
  std::int64_t num_window_parts = 0;  // of blocks, for layers with a window; 0: these keep as much as the others
  std::int64_t max_json_spaces = 40;  // of a run of whitespace in JSON that a grammar asks for
  bool keeps_slots = false;           // conversations can be saved and restored by the number of a slot
  std::uint64_t seed = 0;             // from which requests without a seed draw theirs; 0: from the operating system
  Backend* encoder = nullptr;         // computes encoders of media; must outlive the engine; null: it takes no media
  std::int64_t media_bytes = std::int64_t{256} << 20;  // most memory for rows of media that are kept
  std::shared_ptr<StepTurns> turns;  // shared by the engines of one process; null: this one computes alone
};

// What a request must keep within to be accepted; known before the first request.
struct EngineLimits {
  std::int64_t max_model_len = 0;  // prompt + max_tokens
  std::int32_t max_num_choices = 0;
  std::string fingerprint{};  // of the model, its arithmetic and version, 32 hexadecimal digits
};

class Engine {
 public:
  // Throws StartupError where the disk tier's directory cannot be used.
  // `model` and `backend` must outlive the engine. end_of_generation: the tokenizer's tokens that end a sequence.
  Engine(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage, std::vector<TokenId> end_of_generation,
         const EngineOptions& options);
  // The same over any executor.
  Engine(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation, const EngineOptions& options);
  ~Engine();  // stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts the thread. At most once.
  void start();
  // Refuses new requests and finishes those it has; at the deadline the rest are cut with an error. Returns at once.
  void drain(Clock::time_point deadline);
  // Waits until drained; false where `until` came first.
  bool wait_drained(Clock::time_point until);
  // Cuts whatever is left and joins the thread. Idempotent.
  void stop();

  RequestQueue& queue();
  const EngineLimits& limits() const;
  EngineStats stats() const;
  // What each step does, for traces.
  StepTrace& step_trace();
  // Its last steps and its sequences, for a status page. Any thread.
  EngineView::Reading view();
  // New bounds of the queue and weights of keys, from the next request on. Any thread.
  void reconfigure(const QueueOptions& queue, std::map<std::string, double> key_weights);
  // Saves, restores or erases a slot, beside the requests. Any thread.
  void order_slot(SlotOrder order);
  // False once the device has failed: readiness turns red and stays so.
  bool healthy() const;

  // One turn of the loop without the thread, for tests and benchmarks that are the engine thread themselves; `now` is
  // the time that deadlines and ages are judged by. Returns false where there was nothing to do.
  bool step(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
