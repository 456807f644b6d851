#include "core/model/layers/step_slices.h"

#include <algorithm>

#include "core/model/parts/views.h"
#include "kernels/check.h"

namespace quire {

namespace {

std::size_t index_of(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// Whether the row before `row` sees the token of `row` in the same sequence.
bool sees_past(const AttentionBatch& batch, std::int64_t row) {
  const auto next = std::ranges::upper_bound(batch.query_start, static_cast<std::int32_t>(row - 1));
  const auto sequence = index_of(next - batch.query_start.begin() - 1);
  const std::int64_t position = batch.context_len[sequence] - (*next - row);
  return row < *next && batch.seen_end[index_of(row - 1)] > position;
}

}  // namespace

void StepSlices::reserve(std::int64_t slice_rows, std::int64_t logit_rows) {
  const auto most = index_of(slice_rows);
  query_start_.reserve(most + 1);
  context_len_.reserve(most);
  wanted_.reserve(most);
  kept_.reserve(3 * most);  // up to three kinds of wanted rows
  adapters_.reserve(std::max(most, index_of(logit_rows)));
}

std::int64_t StepSlices::end_of(const StepArrays& arrays, std::int64_t begin) const {
  if (is_causal_) {
    const std::int64_t most = arrays.slice_rows > 0 ? std::min(arrays.slice_rows, kMaxRows) : kMaxRows;
    return whole_spans(arrays, begin, std::min(begin + most, arrays.num_rows()));
  }
  // The last sequence that ends within the usual slice, or the one that begins the slice.
  std::int64_t last = begin;
  for (const std::int32_t start : arrays.attention.query_start) {
    if (start > begin && (start <= begin + kMaxRows || last == begin)) last = start;
  }
  return last;
}

// Rows that see later ones are computed together with them: the last end of rows in (begin, most] that no row sees
// beyond, else the first after it.
std::int64_t StepSlices::whole_spans(const StepArrays& arrays, std::int64_t begin, std::int64_t most) {
  const std::span<const std::int32_t> seen_end = arrays.attention.seen_end;
  if (seen_end.empty()) return most;
  const auto is_end = [&](std::int64_t end) { return end == arrays.num_rows() || !sees_past(arrays.attention, end); };
  for (std::int64_t end = most; end > begin; --end) {
    if (is_end(end)) return end;
  }
  std::int64_t end = most;
  while (!is_end(end))
    ++end;
  QUIRE_CHECK(end - begin <= kMaxRows, "no more rows than fit a slice attend in both directions");
  return end;
}

// A slice equals the step that a smaller token budget would have made: its last sequence may be cut short.
Slice StepSlices::next(const StepArrays& arrays, std::int64_t begin) {
  const std::int64_t end = end_of(arrays, begin);
  const AttentionBatch& whole = arrays.attention;
  const auto num_sequences = std::ssize(whole.context_len);
  std::int64_t first = 0;
  while (whole.query_start[index_of(first + 1)] <= begin)
    ++first;
  query_start_.assign(1, 0);
  context_len_.clear();
  std::int64_t sequence = first;
  for (; sequence < num_sequences && whole.query_start[index_of(sequence)] < end; ++sequence) {
    const std::int64_t last = std::min<std::int64_t>(whole.query_start[index_of(sequence + 1)], end);
    const std::int64_t rows_after = whole.query_start[index_of(sequence + 1)] - last;
    query_start_.push_back(static_cast<std::int32_t>(last - begin));
    context_len_.push_back(static_cast<std::int32_t>(whole.context_len[index_of(sequence)] - rows_after));
  }
  Slice slice;
  slice.begin = begin;
  slice.end = end;
  slice.attention = {
      .query_start = query_start_,
      .context_len = context_len_,
      .block_table_start = whole.block_table_start.subspan(index_of(first), index_of(sequence - first + 1)),
      .block_tables = whole.block_tables,
      .slots = whole.slots.subspan(index_of(begin), index_of(end - begin)),
      .causal = is_causal_};
  if (!whole.seen_end.empty())
    slice.attention.seen_end = whole.seen_end.subspan(index_of(begin), index_of(end - begin));
  if (arrays.window_storage != nullptr) {
    slice.window = slice.attention;
    slice.window.block_table_start =
        arrays.window.block_table_start.subspan(index_of(first), index_of(sequence - first + 1));
    slice.window.block_tables = arrays.window.block_tables;
    slice.window.slots = arrays.window.slots.subspan(index_of(begin), index_of(end - begin));
    slice.window_kv = arrays.window_storage;
  }
  const std::int64_t parts = arrays.positions_per_row;
  slice.positions = arrays.positions.subspan(index_of(begin * parts), index_of((end - begin) * parts));
  slice.positions_per_row = parts;
  slice.states = arrays.state_storage;
  slice.adapters = adapters_of(arrays, first, sequence);
  if (!arrays.states.empty())
    slice.attention.state_ids = arrays.states.subspan(index_of(first), index_of(sequence - first));
  return slice;
}

bool StepSlices::keep_wanted(const StepArrays& arrays, Slice& slice) {
  kept_.clear();
  for (const auto wanted : {arrays.logit_rows, arrays.hidden_rows, arrays.label_rows}) {
    const std::int64_t end = num_before(wanted, slice.end);
    for (std::int64_t i = num_before(wanted, slice.begin); i < end; ++i)
      kept_.push_back(static_cast<std::int32_t>(wanted[index_of(i)] - slice.begin));
  }
  std::ranges::sort(kept_);
  const auto repeated = std::ranges::unique(kept_);
  kept_.erase(repeated.begin(), repeated.end());
  if (std::ssize(kept_) == slice.end - slice.begin) return false;
  for (AdapterRun& run : adapters_)
    run = {num_before(kept_, run.begin), num_before(kept_, run.end), run.adapter};
  std::erase_if(adapters_, [](const AdapterRun& run) { return run.begin == run.end; });
  slice.kept = kept_;
  slice.adapters = adapters_;
  return true;
}

std::span<const std::int32_t> StepSlices::wanted_of(std::span<const std::int32_t> wanted, const Slice& slice) {
  const std::int64_t end = num_before(wanted, slice.end);
  wanted_.clear();
  for (std::int64_t i = num_before(wanted, slice.begin); i < end; ++i) {
    const std::int64_t row = wanted[index_of(i)] - slice.begin;
    wanted_.push_back(static_cast<std::int32_t>(slice.kept ? num_before(*slice.kept, row) : row));
  }
  return wanted_;
}

// --- adapters --------------------------------------------------------------------------------------------------------

void StepSlices::add_adapter(const AdapterRun& run) {
  const bool goes_on =
      !adapters_.empty() && adapters_.back().adapter == run.adapter && adapters_.back().end == run.begin;
  if (goes_on) {
    adapters_.back().end = run.end;
  } else if (run.adapter != nullptr) {
    adapters_.push_back(run);
  }
}

// Runs of the step's sequences [first, end), which are those of the slice.
std::span<const AdapterRun> StepSlices::adapters_of(const StepArrays& arrays, std::int64_t first, std::int64_t end) {
  adapters_.clear();
  for (std::int64_t i = 0; !arrays.adapters.empty() && i < end - first; ++i)
    add_adapter({query_start_[index_of(i)], query_start_[index_of(i + 1)], arrays.adapters[index_of(first + i)]});
  return adapters_;
}

std::span<const AdapterRun> StepSlices::adapters_of_logits(const StepArrays& arrays) {
  const auto& start = arrays.attention.query_start;
  adapters_.clear();
  for (std::int64_t i = 0; !arrays.adapters.empty() && i < std::ssize(arrays.logit_rows); ++i) {
    const auto sequence = std::ranges::upper_bound(start, arrays.logit_rows[index_of(i)]) - start.begin() - 1;
    add_adapter({i, i + 1, arrays.adapters[index_of(sequence)]});
  }
  return adapters_;
}

}  // namespace quire
