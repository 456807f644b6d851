#include "core/engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "core/base/log.h"
#include "core/engine/engine_impl.h"
#include "kernels/device_error.h"

namespace quire {

namespace {

// Idle time after which the engine checks its pool's integrity: longer than pauses between requests of a client.
constexpr std::chrono::milliseconds kIdleBeforeCheck{200};
// Least time for writing cached blocks to the disk, even if a drain has used its time up.
constexpr std::chrono::seconds kLeastTimeToPersist{2};

}  // namespace

Engine::Impl::Impl(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation,
                   const EngineOptions& options)
    : queue(options.queue),
      parts_(std::move(executor), std::move(end_of_generation), options, queue, slot_orders),
      requests_(parts_, queue,
                [this] {
                  kEngineThread.assume();
                  publish();
                }),
      stepper_(parts_, requests_, queue, trace, view, [this] {
        kEngineThread.assume();
        publish();
      }) {
  keeps_slots = parts_.slots.are_kept();
  limits = {.max_model_len = parts_.scheduler.max_model_len(),
            .max_num_choices = options.scheduler.max_num_seqs,
            .fingerprint = hex_digits(parts_.fingerprint)};
  stats_.num_blocks = parts_.kv.pool().num_blocks();
  stats_.num_parts = parts_.kv.window().num_parts();
  parts_.tiers.report(stats_);
  board.publish(stats_);
}

void Engine::Impl::run() {
  kEngineThread.assume();
  pthread_setname_np(pthread_self(), "engine");
  try {
    loop();
  } catch (const std::exception& error) {
    log::error("the engine failed, no more requests are served: {}", error.what());
    fail("The engine failed while serving the request.", "engine_failed");
  }
  shut_down();
}

void Engine::Impl::loop() {
  bool checked = false;
  bool persisting = false;
  while (!stopping.load(std::memory_order_acquire)) {
    // Read before the step, so that the step has received all that came before the queue was closed.
    const bool draining = drain_deadline.load(std::memory_order_acquire) != kNotDraining;
    if (try_step(Clock::now())) {
      if (!requests_.live().empty()) checked = false;
      continue;
    }
    if (draining && requests_.are_done()) {
      const std::lock_guard lock(drained_mutex);
      drained = true;
      drained_changed.notify_all();
    }
    const bool is_idle = requests_.live().empty();
    if (checked && is_idle && persisting) {
      persisting = parts_.tiers.persist_some();
      continue;
    }
    std::optional<Clock::time_point> until = next_deadline();
    if (!checked && is_idle) until = Clock::now() + kIdleBeforeCheck;
    const Clock::time_point slept = Clock::now();
    queue.wait(until);
    if (!checked && is_idle && Clock::now() - slept >= kIdleBeforeCheck) {
      parts_.kv.check_integrity();
      persisting = parts_.tiers.lower() != nullptr;
      checked = true;
    }
  }
}

bool Engine::Impl::step(Clock::time_point now) {
  requests_.receive(now, drain_by());
  parts_.slots.receive();
  const bool has_finished = stepper_.finish_for_drafts();
  Step* const before = parts_.steps.latest;
  Step& step = parts_.steps.beside(before);
  Stepper::Turn turn;
  const bool has_plan = stepper_.plan(step, now, turn);
  if (!has_plan && before == nullptr && !parts_.media.place(false))
    return has_finished || parts_.tiers.is_moving() || parts_.slots.has_order();
  stepper_.take_turn(step, turn);
  const EncoderSlice slice = parts_.media.share().slice_beside(step.plan);
  stepper_.run(before, has_plan ? &step : nullptr);
  encode(slice);
  return true;
}

template <class Work>
void Engine::Impl::on_device(const Work& work) {
  try {
    work();
  } catch (const DeviceError& error) {
    log::error("the device failed, no more requests are served: {}", error.what());
    fail("The device failed while computing the request.", "device_failed");
  }
}

bool Engine::Impl::try_step(Clock::time_point now) {
  bool has_worked = true;
  on_device([&]() QUIRE_REQUIRES(kEngineThread) { has_worked = step(now); });
  publish();
  return has_worked;
}

// Encodes media until the slice is over or a request arrives. One whose piece could not be encoded ends with an error.
void Engine::Impl::encode(const EncoderSlice& slice) {
  const auto wanted = parts_.media.place(parts_.steps.latest != nullptr);
  const PromptMedia::Failed failed = parts_.media.encode(wanted, slice, queue.interrupt(), parts_.no_memory);
  if (failed.request != nullptr) requests_.end(*failed.request, FinishReason::kError, failed.error);
}

void Engine::Impl::shut_down() {
  if (Step* const in_flight = parts_.steps.latest)
    on_device([&]() QUIRE_REQUIRES(kEngineThread) { stepper_.finish(*in_flight); });
  requests_.receive(Clock::now(), drain_by());
  parts_.slots.receive();
  requests_.cut_all();
  if (parts_.slots.are_kept()) parts_.slots.refuse(server_draining(kCutByDrain));
  if (healthy.load(std::memory_order_relaxed)) {
    Clock::time_point until = Clock::now() + kLeastTimeToPersist;
    if (drain_deadline.load(std::memory_order_acquire) != kNotDraining) until = std::max(until, drain_by());
    persist(until);
  }
  publish();
}

// Writes cached blocks to the disk and waits for the writes until `until`.
void Engine::Impl::persist(Clock::time_point until) {
  bool has_more = true;
  while (has_more && healthy.load(std::memory_order_relaxed) && parts_.tiers.wait_for_room(until)) {
    has_more = parts_.tiers.persist_some();
    while (Clock::now() < until && try_step(Clock::now())) {
    }
  }
  parts_.tiers.end_persisting(until);
}

std::optional<Clock::time_point> Engine::Impl::next_deadline() const {
  std::optional<Clock::time_point> next = requests_.next_deadline();
  if (const auto given_up = parts_.tiers.next_deadline()) next = std::min(next.value_or(*given_up), *given_up);
  const Clock::time_point drained_at = drain_by();
  if (drain_deadline.load(std::memory_order_acquire) != kNotDraining && !requests_.are_done())
    next = std::min(next.value_or(drained_at), drained_at);
  return next;
}

// The state of the device is unknown from now on.
void Engine::Impl::fail(const char* message, const char* code) {
  stepper_.abandon();
  const SharedError error = attempt(parts_.no_memory, [&] { return failure(ErrorKind::kInternal, message, code); });
  healthy.store(false, std::memory_order_release);
  queue.close(error);
  requests_.fail_all(error);
  parts_.slots.refuse(*error);
  publish();
  parts_.steps.latest = nullptr;
}

void Engine::Impl::publish() {
  report_cache();
  parts_.tiers.report(stats_);
  parts_.media.report(stats_);
  stepper_.report(stats_);
  const Drafting::Counts& drafts = parts_.drafting.counts();
  stats_.num_drafts = drafts.num_verifications;
  stats_.num_draft_tokens = drafts.num_verified;
  stats_.num_accepted_tokens = drafts.num_accepted;
  stats_.accepted_by_position = drafts.accepted_by_position;
  const Clock::time_point now = Clock::now();
  report_device(now);
  board.publish(stats_);
  if (!view.wants_sequences(now, !requests_.live().empty())) return;
  try {
    list_sequences(now);
  } catch (const std::bad_alloc&) {
    log::warn("no memory to list the sequences for the status page");
  }
}

void Engine::Impl::report_cache() {
  const Scheduler& scheduler = parts_.scheduler;
  stats_.num_running = scheduler.num_running();
  stats_.num_waiting = scheduler.num_waiting();
  stats_.prefix_cache_queries = scheduler.prefix_queries();
  stats_.prefix_cache_hits = scheduler.prefix_hits();
  stats_.num_preemptions = scheduler.num_preemptions();
  stats_.num_swaps = scheduler.num_swaps();
  KvCache& kv = parts_.kv;
  stats_.num_blocks_used = kv.pool().num_referenced();
  stats_.num_blocks_cached = kv.pool().num_cached();
  stats_.num_blocks_used_peak = kv.pool().peak_referenced();
  kv.mutable_index().flush_events();
  stats_.num_blocks_named = kv.index().log().num_blocks();
  stats_.num_event_losses = kv.index().log().num_losses();
  stats_.names_digest = kv.index().log().digest();
  stats_.num_parts_used = kv.window().num_pinned();
  stats_.num_parts_cached = kv.window().num_cached();
  stats_.num_parts_used_peak = kv.window().peak_pinned();
}

// The query may take the driver some microseconds.
void Engine::Impl::report_device(Clock::time_point now) {
  if (now < next_look_at_device_) return;
  next_look_at_device_ = now + std::chrono::seconds(1);
  const DeviceMemoryUse memory = parts_.executor->device_memory();
  stats_.device_memory = memory.total;
  stats_.device_memory_used = memory.used;
  stats_.most_steps_in_flight = parts_.executor->depth();
}

void Engine::Impl::list_sequences(Clock::time_point now) {
  const BlockPool& pool = parts_.kv.pool();
  std::vector<SequenceView> listed;
  std::unordered_set<std::int32_t> shared;
  for (const auto& [id, live] : requests_.live()) {
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
  return impl_->try_step(now);
}

}  // namespace quire
