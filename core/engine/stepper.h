// Stepper: carries out steps: plans one, submits it, finishes the one before, draws its tokens, takes its results and
// sends its events. Engine thread only. With an executor of depth 1, a step is finished in the call that submits it;
// with depth 2, in the next one, so that masks are made and events sent while the device computes. A step with drafts
// is alone in flight. Invariant: a failure of the device is thrown as DeviceError, and nothing is computed after it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/thread_role.h"
#include "core/engine/engine_parts.h"
#include "core/engine/figures/engine_stats.h"
#include "core/engine/figures/engine_view.h"
#include "core/engine/figures/step_meter.h"
#include "core/engine/figures/step_trace.h"
#include "core/engine/request_queue.h"
#include "core/engine/requests.h"
#include "core/engine/step.h"
#include "core/engine/step_turns.h"

namespace quire {

class Stepper {
 public:
  using Turn = std::optional<StepTurns::Turn>;  // the turn of a step and of the rounds before it, once taken

  // All must outlive it. `publish` is called before it waits for a turn.
  Stepper(EngineParts& parts, Requests& requests, RequestQueue& queue, StepTrace& trace, EngineView& view,
          std::function<void()> publish);

  // Finishes the step in flight if drafting with its tokens saves more than the overlap. Returns whether it did.
  bool finish_for_drafts() QUIRE_REQUIRES(kEngineThread);
  // Plans a step; false if there is nothing to compute or move.
  bool plan(Step& step, Clock::time_point now, Turn& turn) QUIRE_REQUIRES(kEngineThread);
  // Waits for the engine's turn, unless the drafting rounds before the step have taken it.
  void take_turn(Step& step, Turn& turn) QUIRE_REQUIRES(kEngineThread);
  // Submits `next`, finishes `before`, and draws the tokens of `next`. Either may be null.
  void run(Step* before, Step* next) QUIRE_REQUIRES(kEngineThread);
  void finish(Step& step) QUIRE_REQUIRES(kEngineThread);
  // Forgets the steps in flight: none is finished any more.
  void abandon();

  void report(EngineStats& stats) const;

 private:
  StepLimits limits(Step& step, Turn& turn) QUIRE_REQUIRES(kEngineThread);
  void note_planned(Step& step, Clock::time_point now) QUIRE_REQUIRES(kEngineThread);
  bool submit(Step& step) QUIRE_REQUIRES(kEngineThread);
  void drop(Step& step, const SharedError& error) QUIRE_REQUIRES(kEngineThread);
  void draw(Step& step) QUIRE_REQUIRES(kEngineThread);
  void add_draws(Step& step, std::size_t index) QUIRE_REQUIRES(kEngineThread);
  void add_forks(Step& step, std::size_t parent) QUIRE_REQUIRES(kEngineThread);
  StepOutput& wait(Step& step) QUIRE_REQUIRES(kEngineThread);
  void finish_entries(Step& step, StepOutput& output) QUIRE_REQUIRES(kEngineThread);
  void verify_drafts(Step& step, StepOutput& output);
  void commit(Step& step, StepOutput& output) QUIRE_REQUIRES(kEngineThread);
  bool fork(Step& step, const StepPart& part) QUIRE_REQUIRES(kEngineThread);
  void commit_part(const Step& step, StepPart& part, std::int64_t num_computed, StepOutput& output);
  void take_hidden(const StepPart& part, std::int64_t num_computed, const StepOutput& output);
  void take_draws(const Step& step, const StepPart& part, StepOutput& output);
  void emit(const Step& step) QUIRE_REQUIRES(kEngineThread);

  EngineParts& parts_;
  Requests& requests_;
  RequestQueue& queue_;
  StepTrace& trace_;
  EngineView& view_;
  const std::function<void()> publish_;
  StepTurns::Member turns_;
  StepMeter meter_;
  bool awaits_others_ = false;  // all work waits for another engine's step, or for the disk
  double predicted_s_ = 0.0;    // time of the latest steps
  std::uint64_t num_plans_ = 0;
  std::uint64_t num_blocks_copied_ = 0;
};

}  // namespace quire
