// Executor: a model on its devices: computes the arrays of a step and draws its tokens. Ticket: a submitted step.
// Engine thread only. Steps are computed in order of submission, each after the moves and copies of its plan; blocks
// and states are read and written by steps only. Invariants: a failure of the device is reported only as a DeviceError
// of Ticket::wait(); a draw that fails ends its own request only; the plan and the arrays' memory stay unchanged until
// wait() has returned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/ids.h"
#include "core/base/thread_role.h"
#include "core/model/layers/model.h"
#include "core/sampling/sampler.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_plan.h"
#include "kernels/step_ops.h"

namespace quire {

// A token to draw from one of the step's rows of logits; neighbours may share a row.
struct DrawRow {
  std::int64_t logit_row = 0;
  const SamplerState* state = nullptr;
  std::span<const TokenId> tokens{};  // prompt and generated: the new token follows them
  std::int64_t num_prompt_tokens = 0;
  std::span<const std::uint32_t> mask{};  // a grammar's mask; empty: none
};

// A known token whose logprob is wanted.
struct ScoreRow {
  std::int64_t logit_row = 0;
  TokenId token;
  std::int32_t num_top = 0;
};

struct DrawBatch {
  std::span<const DrawRow> draws;    // logit rows ascend
  std::span<const ScoreRow> scores;  // logit rows ascend
};

// How many recurrent states and window parts to allocate.
struct KvCounts {
  std::int64_t num_states = 0;        // states of recurrent layers; 0: some for each sequence
  std::int64_t num_window_parts = 0;  // 0: as many as blocks
};

class Ticket {
 public:
  virtual ~Ticket() = default;
  // Draws and scores once the rows are computed. At most once, before wait(). The batch is not read after the call.
  virtual void draw(const DrawBatch& batch) QUIRE_REQUIRES(kEngineThread) = 0;
  // Returns once the whole step is done; the output is valid until the next but one step is submitted. Throws the
  // device's failure.
  virtual StepOutput& wait() QUIRE_REQUIRES(kEngineThread) = 0;
};

// A sequence's result of a drafting round.
struct DraftedToken {
  std::optional<TokenId> token{};  // absent: nothing is allowed
  bool is_likely = false;          // by the drafter's own judgement
};

struct DraftOutput {
  std::span<const DraftedToken> tokens{};
  double seconds = 0.0;  // time measured by the device; 0: take the time of the call
  bool has_failed = false;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::int64_t depth() const = 0;  // steps that may be in flight at once: 1 or 2
  // The ticket is valid until the next but one step is submitted.
  virtual Ticket& submit(const StepPlan& plan, const StepArrays& arrays) QUIRE_REQUIRES(kEngineThread) = 0;

  // A drafting round while no step is in flight, by the method of model().drafts_by(): draws a token after each wanted
  // row, in order. The result is valid until the next call. A failure of the device is reported by the next ticket.
  virtual DraftOutput draft(const DraftArrays& /*arrays*/, std::span<const DrawRow> /*draws*/)
      QUIRE_REQUIRES(kEngineThread) {
    return {.has_failed = true};
  }
  virtual bool can_draft() const { return false; }  // draft() is implemented

  // Copies values that the model reads to its device's memory; null: it takes none. Throws std::bad_alloc, or the
  // device's failure.
  virtual std::unique_ptr<Buffer> upload(std::span<const float> /*values*/) QUIRE_REQUIRES(kEngineThread) {
    return nullptr;
  }

  virtual const Model& model() const = 0;
  virtual KvStorage& storage() = 0;
  virtual KvStorage* window_storage() = 0;  // parts for layers with a window; null: they keep all tokens
  virtual StateStorage* states() = 0;       // states of recurrent layers; null: the model has none
  virtual std::string name() const = 0;     // name of its arithmetic: another one computes other bits
  virtual DeviceMemoryUse device_memory() const { return {}; }
};

// Makes the executor of a model on its backend, for the steps of a scheduler with these options; both must outlive it.
// `storage` has the blocks of all layers, or with window parts of kv_split().full. Throws StartupError if the backend
// does not compute the model's recurrent layers. It has a source file of its own: a daemon under test is linked with
// another one.
std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, const KvCounts& counts = {});

}  // namespace quire
