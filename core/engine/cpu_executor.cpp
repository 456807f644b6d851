#include "core/engine/cpu_executor.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "kernels/check.h"
#include "kernels/device_error.h"

namespace quire {

namespace {

constexpr float kLikelyLead = 1.5F;  // of the best logit over the second, of a draft that is likely

// Whether the row's best token stands out.
bool has_clear_best(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  float second = best;
  for (const float logit : logits) {
    if (logit <= second) continue;
    second = std::min(best, logit);
    best = std::max(best, logit);
  }
  return best - second >= kLikelyLead;
}

}  // namespace

CpuExecutor::CpuExecutor(Model& model, Backend& backend, ExecutorMemory memory, const ExecutorLimits& limits)
    : model_(model),
      backend_(backend),
      memory_(std::move(memory)),
      sampler_(backend, model.vocab_size(), limits.max_tokens) {
  model_.reserve(limits.max_rows, limits.max_logit_rows());
  const auto max_draws = static_cast<std::size_t>(limits.max_draws());
  output_.entries.reserve(max_draws);
  output_.tokens.reserve(max_draws);
  output_.logprobs.reserve(static_cast<std::size_t>(limits.max_logit_rows()));
  rows_.reserve(max_draws);
  drafted_.reserve(static_cast<std::size_t>(limits.max_sequences));
}

// Moves and copies take no memory on the host: what else is thrown than a device's error comes after them.
Ticket& CpuExecutor::submit(const StepPlan& plan, const StepArrays& arrays) {
  failure_ = std::exchange(draft_failure_, nullptr);
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

// The first rows of the step are computed: of each entry, those of its rows that are among them.
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

DraftOutput CpuExecutor::draft(const DraftArrays& arrays, std::span<const DrawRow> draws) {
  drafted_.clear();
  rows_.clear();
  try {
    const MatrixView logits = backend_.on_host(model_.draft(arrays, *memory_.storage), HostResult::kDrafted);
    backend_.synchronize();
    for (std::size_t i = 0; i < draws.size(); ++i) {
      const std::span<float> row = logits_of(logits, draws[i].logit_row);
      drafted_.push_back({.token = std::nullopt, .is_likely = has_clear_best(row)});
      rows_.push_back(sample_row(draws, i, row));
    }
  } catch (const DeviceError&) {
    draft_failure_ = std::current_exception();
    return {.has_failed = true};
  }
  sampler_.sample(rows_);
  for (std::size_t i = 0; i < rows_.size(); ++i)
    drafted_[i].token = rows_[i].drawn.token;
  return {.tokens = drafted_};
}

// Before drawing overwrites the logits.
void CpuExecutor::score(std::span<const ScoreRow> scores) {
  try {
    output_.logprobs.resize(scores.size());
  } catch (const std::bad_alloc&) {
    return;  // StepOutput::logprob(): none of them could be computed
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
