#include "core/executor/cpu_executor.h"

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/check.h"
#include "kernels/device_error.h"

namespace quire {

CpuExecutor::CpuExecutor(Model& model, Backend& backend, ExecutorMemory memory, const ExecutorLimits& limits)
    : model_(model),
      backend_(backend),
      memory_(std::move(memory)),
      draft_round_(model, backend),
      sampler_(backend, model.vocab_size(), limits.max_tokens) {
  model_.reserve(limits.max_rows, limits.max_logit_rows());
  const auto max_draws = static_cast<std::size_t>(limits.max_draws());
  output_.entries.reserve(max_draws);
  output_.tokens.reserve(max_draws);
  output_.logprobs.reserve(static_cast<std::size_t>(limits.max_logit_rows()));
  rows_.reserve(max_draws);
  draft_round_.reserve(static_cast<std::size_t>(limits.max_sequences));
}

// Moves and copies allocate nothing on the host: any other exception than a DeviceError comes after them.
Ticket& CpuExecutor::submit(const StepPlan& plan, const StepArrays& arrays) {
  failure_ = draft_round_.take_failure();
  output_.clear();
  computed_ = {};
  if (failure_ != nullptr) return *this;
  try {
    output_.moved = memory_.move(plan.transfers);
    if (plan.empty()) return *this;
    computed_ = model_.forward(memory_.with_storages(arrays), *memory_.storage);
    computed_.logits = backend_.on_host(computed_.logits, HostResult::kLogits);
    computed_.hidden = backend_.on_host(computed_.hidden, HostResult::kHidden);
    computed_.labels = backend_.on_host(computed_.labels, HostResult::kLabels);
    note_computed(plan, arrays);
  } catch (const DeviceError&) {
    failure_ = std::current_exception();
  }
  return *this;
}

// Records how many of each entry's rows are among the step's first rows, which are computed.
void CpuExecutor::note_computed(const StepPlan& plan, const StepArrays& arrays) {
  output_.hidden = dense_values(computed_.hidden);
  output_.labels = dense_values(computed_.labels);
  if (computed_.num_rows < arrays.num_rows()) output_.end_early(plan, computed_.num_rows);
  output_.cut_slice = computed_.cut_slice;
}

void CpuExecutor::draw(const DrawBatch& batch) {
  if (failure_ != nullptr) return;
  try {
    backend_.synchronize();
  } catch (const DeviceError&) {
    failure_ = std::current_exception();
    return;
  }
  score(batch.scores);
  sample(batch.draws);
}

// Called before drawing, which overwrites the logits.
void CpuExecutor::score(std::span<const ScoreRow> scores) {
  try {
    output_.logprobs.resize(scores.size());
  } catch (const std::bad_alloc&) {
    return;  // no scores: StepOutput::take_logprob() returns nothing
  }
  backend_.parallel_for(static_cast<std::int64_t>(scores.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); std::cmp_less(i, end); ++i) {
      if (scores[i].logit_row >= computed_.logits.rows) continue;
      try {
        output_.logprobs[i] =
            Sampler::logprob_of(logits_of(computed_.logits, scores[i].logit_row), scores[i].token, scores[i].num_top);
      } catch (const std::bad_alloc&) {
        output_.logprobs[i].reset();
      }
    }
  });
}

void CpuExecutor::sample(std::span<const DrawRow> draws) {
  rows_.clear();
  for (std::size_t i = 0; i < draws.size() && draws[i].logit_row < computed_.logits.rows; ++i)
    rows_.push_back(sample_row(draws, i, logits_of(computed_.logits, draws[i].logit_row)));
  sampler_.sample(rows_);
  output_.tokens.resize(draws.size());
  for (std::size_t i = 0; i < rows_.size(); ++i)
    output_.tokens[i] = std::move(rows_[i].drawn);
}

StepOutput& CpuExecutor::wait() {
  if (failure_ == nullptr) backend_.synchronize();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return output_;
}

std::unique_ptr<CpuExecutor> make_cpu_executor(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                               const SchedulerOptions& scheduler, const KvCounts& counts) {
  const ExecutorLimits limits = executor_limits(model, *storage, scheduler);
  return std::make_unique<CpuExecutor>(model, backend,
                                       executor_memory(model, backend, std::move(storage), scheduler, counts), limits);
}

}  // namespace quire
