// DraftRound: one round of drafting on a model's device, with tokens drawn by the host's Sampler. Shared by the
// executors. Engine thread only; no step is in flight. A failure of the device is kept for the ticket of the next step.
#pragma once

#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "core/executor/executor.h"

namespace quire {

class DraftRound {
 public:
  DraftRound(Model& model, Backend& backend) : model_(model), backend_(backend) {}

  void reserve(std::size_t max_draws);
  // Implements Executor::draft().
  DraftOutput compute(const DraftArrays& arrays, std::span<const DrawRow> draws, KvStorage& storage, Sampler& sampler);
  // Failure reported by the device since the last call; null: none.
  std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }

 private:
  Model& model_;
  Backend& backend_;
  std::vector<SampleRow> rows_;
  std::vector<DraftedToken> drafted_;
  std::exception_ptr failure_;
};

}  // namespace quire
