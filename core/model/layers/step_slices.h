// StepSlices: cuts a step into slices, consecutive rows that are computed at once. Engine thread only. Invariants: a
// slice equals the step that a smaller token budget would have made; rows that see later ones are in the same slice;
// after reserve() nothing is allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/layers/model.h"
#include "core/model/parts/layer_run.h"

namespace quire {

class StepSlices {
 public:
  // Rows computed at once: many, so that matrices are read seldom; few, so that activations stay small.
  static constexpr std::int64_t kMaxRows = 512;
  static_assert(kMaxRows >= kMostRowsOfSpan, "rows that attend in both directions fit a slice");

  explicit StepSlices(bool is_causal) : is_causal_(is_causal) {}

  // Most rows of a slice of steps of up to `num_rows`. A sequence that attends in both directions is computed whole.
  static std::int64_t most_rows(const ModelSpec& spec, std::int64_t num_rows) {
    return spec.is_causal ? std::min(num_rows, kMaxRows) : num_rows;
  }
  void reserve(std::int64_t slice_rows, std::int64_t logit_rows);

  // The slice that begins at this row, without its storages. Valid until the next call.
  Slice next(const StepArrays& arrays, std::int64_t begin);
  // Narrows the slice to its wanted rows, which slice.kept names; false: it keeps all.
  bool keep_wanted(const StepArrays& arrays, Slice& slice);
  // Places of the slice's wanted rows among those that it keeps. Valid until the next call.
  std::span<const std::int32_t> wanted_of(std::span<const std::int32_t> wanted, const Slice& slice);
  // Adapters of the step's logit rows. Valid until the next call.
  std::span<const AdapterRun> adapters_of_logits(const StepArrays& arrays);

 private:
  std::int64_t end_of(const StepArrays& arrays, std::int64_t begin) const;
  static std::int64_t whole_spans(const StepArrays& arrays, std::int64_t begin, std::int64_t most);
  std::span<const AdapterRun> adapters_of(const StepArrays& arrays, std::int64_t first, std::int64_t end);
  void add_adapter(const AdapterRun& run);

  const bool is_causal_;
  std::vector<std::int32_t> query_start_;
  std::vector<std::int32_t> context_len_;
  std::vector<std::int32_t> wanted_;
  std::vector<std::int32_t> kept_;
  std::vector<AdapterRun> adapters_;
};

}  // namespace quire
