// Engine::Impl: the engine's loop over its parts, and what other threads share with it. Private to core/engine; Engine
// thread only, except where a member says otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/engine_parts.h"
#include "core/engine/figures/engine_view.h"
#include "core/engine/figures/stats_board.h"
#include "core/engine/requests.h"
#include "core/engine/stepper.h"

namespace quire {

class Engine::Impl {
 public:
  Impl(std::unique_ptr<Executor> executor, std::vector<TokenId> end_of_generation, const EngineOptions& options);

  void run();
  // Carries out a step, and refuses all requests if the device fails. False if there was nothing to do.
  bool try_step(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  // Ends all requests with an error, queued ones included.
  void shut_down() QUIRE_REQUIRES(kEngineThread);

  // Any thread.
  RequestQueue queue;
  StatsBoard board;
  StepTrace trace;
  EngineView view;
  SlotOrders slot_orders;
  bool keeps_slots = false;
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
  void loop() QUIRE_REQUIRES(kEngineThread);
  bool step(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void encode(const EncoderSlice& slice) QUIRE_REQUIRES(kEngineThread);
  Clock::time_point drain_by() const {
    return Clock::time_point(Clock::duration(drain_deadline.load(std::memory_order_acquire)));
  }
  std::optional<Clock::time_point> next_deadline() const QUIRE_REQUIRES(kEngineThread);
  void persist(Clock::time_point until) QUIRE_REQUIRES(kEngineThread);
  // Calls `work`, and fail() if the device fails in it.
  template <class Work>
  void on_device(const Work& work) QUIRE_REQUIRES(kEngineThread);
  // Stops computing: every request, present or future, ends with the error.
  void fail(const char* message, const char* code) QUIRE_REQUIRES(kEngineThread);
  void publish() QUIRE_REQUIRES(kEngineThread);
  void report_cache() QUIRE_REQUIRES(kEngineThread);
  void report_device(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  void list_sequences(Clock::time_point now) QUIRE_REQUIRES(kEngineThread);

  EngineParts parts_ QUIRE_GUARDED_BY(kEngineThread);
  Requests requests_ QUIRE_GUARDED_BY(kEngineThread);
  Stepper stepper_ QUIRE_GUARDED_BY(kEngineThread);
  EngineStats stats_ QUIRE_GUARDED_BY(kEngineThread);  // the last published figures
  Clock::time_point next_look_at_device_ QUIRE_GUARDED_BY(kEngineThread);
};

}  // namespace quire
