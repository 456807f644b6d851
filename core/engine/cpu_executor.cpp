#include "core/engine/cpu_executor.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "kernels/check.h"
#include "kernels/device_error.h"

namespace quire {

namespace {

std::span<float> row_of(const MatrixView& matrix, std::int64_t row) {
  return {matrix.data + row * matrix.stride, static_cast<std::size_t>(matrix.cols)};
}

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

SampleRow row_for(const DrawRow& draw, std::span<float> logits, bool is_shared) {
  return {.logits = logits,
          .is_shared = is_shared,
          .state = draw.state,
          .tokens = draw.tokens,
          .num_prompt_tokens = draw.num_prompt_tokens,
          .mask = draw.mask};
}

constexpr std::int64_t kStatesPerSequence = 3;  // its own, and two snapshots

}  // namespace

CpuExecutor::CpuExecutor(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                         const ExecutorLimits& limits, std::unique_ptr<StateStorage> states,
                         std::unique_ptr<KvStorage> window_storage)
    : model_(model),
      backend_(backend),
      storage_(std::move(storage)),
      states_(std::move(states)),
      window_storage_(std::move(window_storage)),
      sampler_(backend, model.vocab_size(), limits.max_tokens) {
  const std::int64_t max_logit_rows = std::min(limits.max_sequences + kMaxPromptLogitRows, limits.max_rows);
  model_.reserve(limits.max_rows, max_logit_rows);
  const auto max_draws = static_cast<std::size_t>(2 * limits.max_sequences + kMostDraftsOfStep);
  output_.entries.reserve(max_draws);
  output_.tokens.reserve(max_draws);
  output_.logprobs.reserve(static_cast<std::size_t>(max_logit_rows));
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
    output_.moved = do_moves(plan.transfers.moves, *storage_, states_.get(), window_storage_.get());
    for (const BlockCopy& copy : plan.transfers.copies) {
      switch (copy.of) {
        case BlockCopy::Of::kBlock: storage_->copy_block(copy.source.value, copy.destination.value); break;
        case BlockCopy::Of::kPart: window_storage_->copy_block(copy.source.value, copy.destination.value); break;
        case BlockCopy::Of::kState: states_->copy_state(copy.source.value, copy.destination.value); break;
      }
    }
    if (plan.empty()) return *this;
    StepArrays with_storages = arrays;
    with_storages.state_storage = states_.get();
    with_storages.window_storage = window_storage_.get();
    computed_ = model_.forward(with_storages, *storage_);
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
  const auto values = [](const MatrixView& rows) {
    QUIRE_CHECK(rows.rows == 0 || rows.stride == rows.cols, "hidden states and labels lie row after row");
    return std::span<const float>(rows.data, static_cast<std::size_t>(rows.rows * rows.cols));
  };
  output_.hidden = values(computed_.hidden);
  output_.labels = values(computed_.labels);
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
    const MatrixView logits = backend_.on_host(model_.draft(arrays, *storage_), HostResult::kLogits);
    backend_.synchronize();
    for (const DrawRow& draw : draws) {
      const std::span<float> row = row_of(logits, draw.logit_row);
      drafted_.push_back({.token = std::nullopt, .is_likely = has_clear_best(row)});
      rows_.push_back(row_for(draw, row, false));
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
            Sampler::logprob_of(row_of(computed_.logits, scores[i].logit_row), scores[i].token, scores[i].num_top);
      } catch (const std::bad_alloc&) {
        output_.logprobs[i].reset();
      }
    }
  });
}

void CpuExecutor::sample(std::span<const DrawRow> draws) {
  rows_.clear();
  for (std::size_t i = 0; i < draws.size() && draws[i].logit_row < computed_.logits.rows; ++i) {
    const DrawRow& draw = draws[i];
    const bool is_shared = (i > 0 && draws[i - 1].logit_row == draw.logit_row) ||
                           (i + 1 < draws.size() && draws[i + 1].logit_row == draw.logit_row);
    rows_.push_back(row_for(draw, row_of(computed_.logits, draw.logit_row), is_shared));
  }
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
  const std::int64_t pool = storage->layout().num_blocks * storage->layout().block_size;
  const std::int64_t asked = scheduler.max_model_len > 0 ? scheduler.max_model_len : pool;
  ExecutorLimits limits{.max_rows = scheduler.max_num_batched_tokens,
                        .max_sequences = scheduler.max_num_seqs,
                        .max_tokens = std::min({asked, pool, model.max_context()})};
  if (!model.is_causal()) limits.max_rows = std::max(limits.max_rows, limits.max_tokens);
  std::unique_ptr<StateStorage> states;
  if (model.state_floats() > 0) {
    if (backend.recurrent() == nullptr)
      throw StartupError(backend.name() + " does not compute the model's recurrent layers");
    const std::int64_t num_wanted =
        counts.num_states > 0 ? counts.num_states : kStatesPerSequence * scheduler.max_num_seqs;
    states = backend.recurrent()->allocate_states({.num_states = num_wanted, .floats = model.state_floats()});
  }
  std::unique_ptr<KvStorage> window_storage;
  if (counts.num_window_parts > 0) {
    KvLayout layout = model.kv_split().windowed;
    layout.num_blocks = counts.num_window_parts;
    layout.block_size = storage->layout().block_size;
    layout.dtype = storage->layout().dtype;
    window_storage = backend.allocate_kv(layout);
  }
  return std::make_unique<CpuExecutor>(model, backend, std::move(storage), limits, std::move(states),
                                       std::move(window_storage));
}

}  // namespace quire
