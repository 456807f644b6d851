#include "core/engine/engine.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <unordered_set>
#include <utility>

#include "core/base/log.h"
#include "core/engine/engine_impl.h"

namespace quire {

namespace {

// Idle time after which the engine checks its pool's integrity: longer than pauses between requests of a client.
constexpr std::chrono::milliseconds kIdleBeforeCheck{200};
// Least time for writing cached blocks to the disk, even if a drain has used its time up.
constexpr std::chrono::seconds kLeastTimeToPersist{2};

ModelIdentity identity_of(ModelIdentity identity, Executor& executor) {
  const KvLayout& layout = executor.storage().layout();
  identity.arithmetic = executor.name();
  identity.block_size = layout.block_size;
  identity.cache_type = layout.dtype;
  identity.has_window_parts = executor.window_storage() != nullptr;
  return identity;
}

std::int64_t num_states(Executor& executor) {
  return executor.states() == nullptr ? 0 : executor.states()->layout().num_states;
}

KvWindow window_of(Executor& executor) {
  if (executor.window_storage() == nullptr) return {};
  return {.num_tokens = executor.model().kv_split().window,
          .num_parts = executor.window_storage()->layout().num_blocks};
}

std::uint64_t first_seed(std::uint64_t configured) {
  if (configured != 0) return configured;
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

Step make_step(const EngineOptions& options, const KvCache& kv, const Scheduler& scheduler, std::int64_t vocab_size) {
  const std::int32_t max_num_seqs = options.scheduler.max_num_seqs;
  return {kv.block_size(), scheduler.max_step_tokens(),
          max_num_seqs,    max_num_seqs * kv.blocks_for(scheduler.max_model_len()),
          vocab_size,      kv.window().num_parts() > 0 ? &kv.window() : nullptr};
}

// Completes the options with limits of the model and its memory.
SchedulerOptions options_for(Executor& executor, SchedulerOptions options) {
  const Model& model = executor.model();
  const std::int64_t context = model.max_context();
  options.max_model_len = options.max_model_len > 0 ? std::min(options.max_model_len, context) : context;
  options.whole_prompts = !model.is_causal();
  if (executor.states() != nullptr)
    options.max_num_seqs =
        static_cast<std::int32_t>(std::min<std::int64_t>(options.max_num_seqs, num_states(executor)));
  return options;
}

}  // namespace

Engine::Impl::Impl(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation,
                   const EngineOptions& options)
    : queue(options.queue),
      keeps_slots(options.keeps_slots && options.kv_cache.enable_prefix_caching && executor->model().is_causal()),
      executor_(std::move(executor)),
      end_of_generation_(std::move(end_of_generation)),
      options_(options),
      identity_(identity_of(options.identity, *executor_)),
      fingerprint_{identity_.key().low, identity_.key().high},
      next_seed_(first_seed(options.seed)),
      kv_(executor_->storage().layout().num_blocks, static_cast<std::int32_t>(executor_->storage().layout().block_size),
          options.kv_cache.enable_prefix_caching && executor_->model().is_causal(), content_hash, identity_.text(),
          num_states(*executor_), window_of(*executor_)),
      scheduler_(options_for(*executor_, options.scheduler), kv_),
      drafting_(*executor_, kv_, scheduler_, options.scheduler, {options.speculation, options.make_drafter},
                end_of_generation_),
      media_(options.encoder, options.media_bytes, *executor_, kv_, scheduler_, options.scheduler),
      tiers_(kv_, scheduler_, *executor_,
             {.kv_cache = options.kv_cache,
              .shared_store = options.shared_store,
              .fingerprint = fingerprint_,
              .keeps_slots = keeps_slots,
              .wake = [this] { queue.wake(); }}),
      held_ends_(tiers_.lower(), no_memory_),
      slots_(keeps_slots ? options.scheduler.max_num_seqs : 0, slot_orders, kv_, tiers_.lower(), fingerprint_,
             no_memory_),
      steps_{make_step(options, kv_, scheduler_, executor_->model().vocab_size()),
             make_step(options, kv_, scheduler_, executor_->model().vocab_size())} {
  kv_.set_retained_share(options.kv_cache.retained_share);
  limits = {.max_model_len = scheduler_.max_model_len(),
            .max_num_choices = options.scheduler.max_num_seqs,
            .fingerprint = hex_digits(fingerprint_)};
  stats_.num_blocks = kv_.pool().num_blocks();
  stats_.num_parts = kv_.window().num_parts();
  tiers_.report(stats_);
  if (options_.cache_events != nullptr) kv_.mutable_index().log().set_sink(options_.cache_events.get());
  board.publish(stats_);
}

void Engine::Impl::run() {
  kEngineThread.assume();
  pthread_setname_np(pthread_self(), "engine");
  try {
    loop();
  } catch (const std::exception& error) {
    log::error("the engine failed, no more requests are served: {}", error.what());
    for (Step& step : steps_)
      scheduler_.abandon(step.plan);
    refuse_all("The engine failed while serving the request.", "engine_failed");
  }
  shut_down();
}

void Engine::Impl::loop() {
  bool checked = false;
  bool persisting = false;
  while (!stopping.load(std::memory_order_acquire)) {
    // Read before the step, so that the step has received all that came before the queue was closed.
    const bool draining = drain_deadline.load(std::memory_order_acquire) != kNotDraining;
    if (step(Clock::now())) {
      if (!live_.empty()) checked = false;
      continue;
    }
    if (draining && live_.empty() && held_ends_.empty()) {
      const std::lock_guard lock(drained_mutex);
      drained = true;
      drained_changed.notify_all();
    }
    if (checked && live_.empty() && persisting) {
      persisting = tiers_.persist_some();
      continue;
    }
    std::optional<Clock::time_point> until = next_deadline();
    if (!checked && live_.empty()) until = Clock::now() + kIdleBeforeCheck;
    const Clock::time_point slept = Clock::now();
    queue.wait(until);
    if (!checked && live_.empty() && Clock::now() - slept >= kIdleBeforeCheck) {
      kv_.check_integrity();
      persisting = tiers_.lower() != nullptr;
      checked = true;
    }
  }
}

void Engine::Impl::shut_down() {
  if (Step* const before = std::exchange(in_flight_, nullptr)) finish(*before);
  receive(Clock::now());
  cut_all(FinishReason::kAbort, drained_error());
  if (slots_.are_kept()) slots_.refuse(server_draining(kCutByDrain));
  if (healthy.load(std::memory_order_relaxed)) {
    Clock::time_point until = Clock::now() + kLeastTimeToPersist;
    if (const Clock::rep drain = drain_deadline.load(std::memory_order_acquire); drain != kNotDraining)
      until = std::max(until, Clock::time_point(Clock::duration(drain)));
    persist(until);
  }
  publish();
}

// Writes cached blocks to the disk and waits for the writes until `until`.
void Engine::Impl::persist(Clock::time_point until) {
  bool has_more = true;
  while (has_more && healthy.load(std::memory_order_relaxed) && tiers_.wait_for_room(until)) {
    has_more = tiers_.persist_some();
    while (Clock::now() < until && step(Clock::now())) {
    }
  }
  tiers_.end_persisting(until);
}

std::optional<Clock::time_point> Engine::Impl::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Deadlines* deadlines : {&deadlines_, &queue_deadlines_}) {
    if (!deadlines->empty() && (!next || deadlines->begin()->first < *next)) next = deadlines->begin()->first;
  }
  for (const auto& given_up : {tiers_.next_deadline(), held_ends_.next_deadline()}) {
    if (given_up && (!next || *given_up < *next)) next = given_up;
  }
  const Clock::rep drain = drain_deadline.load(std::memory_order_acquire);
  if (drain != kNotDraining && !(live_.empty() && held_ends_.empty())) {
    const Clock::time_point at{Clock::duration(drain)};
    if (!next || at < *next) next = at;
  }
  return next;
}

void Engine::Impl::publish() {
  const BlockPool& pool = kv_.pool();
  stats_.num_running = scheduler_.num_running();
  stats_.num_waiting = scheduler_.num_waiting();
  stats_.num_blocks_used = pool.num_referenced();
  stats_.num_blocks_cached = pool.num_cached();
  stats_.num_blocks_used_peak = pool.peak_referenced();
  kv_.mutable_index().flush_events();
  stats_.num_blocks_named = kv_.index().log().num_blocks();
  stats_.num_event_losses = kv_.index().log().num_losses();
  stats_.names_digest = kv_.index().log().digest();
  stats_.num_parts_used = kv_.window().num_pinned();
  stats_.num_parts_cached = kv_.window().num_cached();
  stats_.num_parts_used_peak = kv_.window().peak_pinned();
  tiers_.report(stats_);
  media_.report(stats_);
  const Drafting::Counts& drafts = drafting_.counts();
  stats_.num_drafts = drafts.num_verifications;
  stats_.num_draft_tokens = drafts.num_verified;
  stats_.num_accepted_tokens = drafts.num_accepted;
  stats_.accepted_by_position = drafts.accepted_by_position;
  stats_.prefix_cache_queries = scheduler_.prefix_queries();
  stats_.prefix_cache_hits = scheduler_.prefix_hits();
  stats_.num_preemptions = scheduler_.num_preemptions();
  stats_.num_swaps = scheduler_.num_swaps();
  const Clock::time_point now = Clock::now();
  look_at_device(now);
  board.publish(stats_);
  if (!view.wants_sequences(now, !live_.empty())) return;
  try {
    list_sequences(now);
  } catch (const std::bad_alloc&) {
    log::warn("no memory to list the sequences for the status page");
  }
}

// The query may take the driver some microseconds.
void Engine::Impl::look_at_device(Clock::time_point now) {
  if (now < next_look_at_device_) return;
  next_look_at_device_ = now + std::chrono::seconds(1);
  const DeviceMemoryUse memory = executor_->device_memory();
  stats_.device_memory = memory.total;
  stats_.device_memory_used = memory.used;
  stats_.most_steps_in_flight = executor_->depth();
}

void Engine::Impl::list_sequences(Clock::time_point now) {
  const BlockPool& pool = kv_.pool();
  std::vector<SequenceView> listed;
  std::unordered_set<std::int32_t> shared;
  for (const auto& [id, live] : live_) {
    for (const auto& generation : live->choices) {
      if (!generation) continue;
      SequenceView sequence{.request_id = id,
                            .key_name = live->request->key_name,
                            .choice = generation->choice,
                            .is_running = generation->state == Sequence::State::kRunning,
                            .num_tokens = generation->num_tokens(),
                            .num_computed = generation->num_computed,
                            .num_prompt_tokens = generation->num_prompt_tokens,
                            .num_blocks = static_cast<std::int64_t>(generation->table.blocks.size())};
      for (const BlockId block : generation->table.blocks) {
        if (pool.num_references(block) < 2) continue;
        ++sequence.num_shared_blocks;
        shared.insert(block.value);
      }
      listed.push_back(std::move(sequence));
    }
  }
  view.set_sequences(std::move(listed), static_cast<std::int64_t>(shared.size()), now);
}

Engine::Engine(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
               std::vector<TokenId> end_of_generation, const EngineOptions& options)
    : Engine(executor_for(model, backend, std::move(storage), options.scheduler,
                          {.num_states = options.num_states, .num_window_parts = options.num_window_parts}),
             std::move(end_of_generation), options) {}

Engine::Engine(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(std::move(executor), std::move(end_of_generation), options)) {}

Engine::~Engine() {
  stop();
}

void Engine::start() {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

void Engine::drain(Clock::time_point deadline) {
  impl_->queue.close();
  impl_->drain_deadline.store(deadline.time_since_epoch().count(), std::memory_order_release);
  impl_->queue.wake();
}

bool Engine::wait_drained(Clock::time_point until) {
  std::unique_lock lock(impl_->drained_mutex);
  return impl_->drained_changed.wait_until(lock, until, [this] { return impl_->drained; });
}

void Engine::stop() {
  impl_->queue.close();
  impl_->stopping.store(true, std::memory_order_release);
  impl_->queue.wake();
  if (impl_->thread.joinable()) {
    impl_->thread.join();
  } else {
    kEngineThread.assume();  // the thread never ran or has ended: the caller acts as the engine thread
    impl_->shut_down();
  }
}

EngineView::Reading Engine::view() {
  return impl_->view.read(Clock::now());
}

StepTrace& Engine::step_trace() {
  return impl_->trace;
}

void Engine::reconfigure(const QueueOptions& queue_options, std::map<std::string, double> key_weights) {
  impl_->queue.reconfigure(queue_options, std::move(key_weights));
}

RequestQueue& Engine::queue() {
  return impl_->queue;
}
const EngineLimits& Engine::limits() const {
  return impl_->limits;
}
EngineStats Engine::stats() const {
  return impl_->board.read();
}
bool Engine::healthy() const {
  return impl_->healthy.load(std::memory_order_acquire);
}
void Engine::order_slot(SlotOrder order) {
  if (!impl_->keeps_slots) {
    (*order.done)(failure(ErrorKind::kInvalidRequest, "This model keeps no slots: its prefix cache is off",
                          "unsupported_operation"));
    return;
  }
  impl_->slot_orders.add(std::move(order));
  impl_->queue.wake();
}

bool Engine::step(Clock::time_point now) {
  return impl_->step(now);
}

}  // namespace quire
