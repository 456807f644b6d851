#include "core/executor/draft_round.h"

#include <algorithm>
#include <limits>

#include "core/executor/executor_memory.h"
#include "kernels/device_error.h"

namespace quire {

namespace {

constexpr float kLikelyLead = 1.5F;  // least lead of a likely draft's logit over the second best

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

void DraftRound::reserve(std::size_t max_draws) {
  rows_.reserve(max_draws);
  drafted_.reserve(max_draws);
}

DraftOutput DraftRound::compute(const DraftArrays& arrays, std::span<const DrawRow> draws, KvStorage& storage,
                                Sampler& sampler) {
  drafted_.clear();
  rows_.clear();
  try {
    const MatrixView logits = backend_.on_host(model_.draft(arrays, storage), HostResult::kDrafted);
    backend_.synchronize();
    for (std::size_t i = 0; i < draws.size(); ++i) {
      const std::span<float> row = logits_of(logits, draws[i].logit_row);
      drafted_.push_back({.token = std::nullopt, .is_likely = has_clear_best(row)});
      rows_.push_back(sample_row(draws, i, row));
    }
  } catch (const DeviceError&) {
    failure_ = std::current_exception();
    return {.has_failed = true};
  }
  sampler.sample(rows_);
  for (std::size_t i = 0; i < rows_.size(); ++i)
    drafted_[i].token = rows_[i].drawn.token;
  return {.tokens = drafted_};
}

}  // namespace quire
