// Drafts: chooses the drafted tokens that a step verifies, best first, as long as they yield more tokens for their time
// than the step's streams. DraftBudget: the same choice for rounds of drafting before the step. Engine thread only.
// Nothing is preempted for a draft.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/row_curve.h"
#include "core/sched/running.h"
#include "core/sched/step_cost.h"
#include "core/sched/time_bounds.h"

namespace quire {

// Bounds the time of drafting before a step: a round is computed only if it yields more tokens for its time than the
// step without it.
class DraftBudget {
 public:
  // seconds: time of the step without drafts; 0: not known yet. num_streams: sequences that the step continues. row:
  // time of verifying one draft. margin: how many times better a round must use its time than the step without it.
  DraftBudget(double seconds, double num_streams, double row, double margin)
      : seconds_(seconds), num_tokens_(num_streams), row_(row), margin_(margin) {}

  // Adds a round over num_sequences that takes `round` seconds (0: not known) and should yield num_expected tokens.
  // False: it is not worth its time.
  bool take(double num_expected, std::int64_t num_sequences, double round);
  bool is_worth(double num_expected, std::int64_t num_sequences, double round) const;

  double seconds() const { return seconds_; }
  double row_seconds() const { return row_; }
  double token_seconds() const { return num_tokens_ > 0.0 ? seconds_ / num_tokens_ : 0.0; }

 private:
  double seconds_;
  double num_tokens_;
  double row_;
  double margin_;
  int num_unpriced_ = 0;
};

class Drafts {
 public:
  Drafts(const SchedulerOptions& options, KvCache& kv, StepCost& cost, const TimeBounds& bounds,
         const Running& running);

  void fit(Pass& pass);
  // Called before the plan is made. budget(): for rounds of drafting. take_room(): gets blocks for at most `most`
  // drafts behind the last token of a sequence, and returns for how many drafts there are blocks.
  DraftBudget budget() const;
  std::int64_t take_room(Sequence& sequence, std::int64_t most);
  // Learns the time of a committed plan.
  void observe(const StepPlan& committed, double seconds);

 private:
  // A streaming entry that has drafts left, with the chance and the price of its next draft.
  struct Drafted {
    std::size_t entry;
    double probability;  // chance of being accepted
    double seconds;
    std::int64_t num_taken = 0;
    bool operator<(const Drafted& other) const;
  };

  void collect(const Pass& pass);
  std::size_t choose(const Pass& pass);
  std::size_t or_measurement(const StepPlan& plan, std::size_t num_best);
  bool place(Pass& pass, StepEntry& entry);
  std::int64_t most_of_step(const Pass& pass) const;
  bool has_block_to_spare() const;

  const SchedulerOptions& options_;
  KvCache& kv_;
  StepCost& cost_;
  const TimeBounds& bounds_;
  const Running& running_;
  RowCurve row_curve_;
  std::vector<Drafted> drafted_;     // scratch of fit()
  std::vector<std::size_t> chosen_;  // the entry of each draft, best first; scratch of fit()
};

}  // namespace quire
