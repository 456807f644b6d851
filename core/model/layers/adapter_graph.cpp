// Rows with adapters: the runs of a slice, and the changes of the head.
#include <algorithm>

#include "core/base/result.h"
#include "core/model/layers/adapters/adapter_check.h"
#include "core/model/layers/adapters/read_adapter.h"
#include "core/model/layers/transformer.h"
#include "core/model/parts/views.h"

namespace quire {

namespace {

std::size_t as_index(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

// Most experts chosen for a row in any layer.
std::int64_t Transformer::most_chosen() const {
  std::int64_t most = 0;
  for (const LayerSpec& layer : spec_.layers)
    most = std::max(most, layer.feed_forward.route.num_chosen);
  return most;
}

void Transformer::allow_adapters(std::int64_t max_rank) {
  require_adapters(backend_);
  work_.activations.set_width(kLowRank, max_rank);
  work_.activations.set_width(kHeadLowRank, max_rank);
  work_.activations.set_width(kExpertLowRank, most_chosen() * max_rank);
}

std::shared_ptr<const Adapter> Transformer::load_adapter(const std::filesystem::path& path) const {
  const std::int64_t max_rank = work_.activations.widths()[kLowRank];
  if (max_rank == 0) throw StartupError(path.string() + ": adapters were not allowed for");
  return read_adapter(path, spec_, backend_, max_rank);
}

// Runs of the step's sequences [first, end), which are those of the slice.
std::span<const AdapterRun> Transformer::adapter_runs(const StepArrays& arrays, std::int64_t first, std::int64_t end) {
  slice_adapters_.clear();
  for (std::int64_t i = 0; !arrays.adapters.empty() && i < end - first; ++i) {
    const Adapter* const adapter = arrays.adapters[as_index(first + i)];
    if (adapter == nullptr) continue;
    const AdapterRun run{slice_query_start_[as_index(i)], slice_query_start_[as_index(i + 1)], adapter};
    const bool goes_on = !slice_adapters_.empty() && slice_adapters_.back().adapter == adapter &&
                         slice_adapters_.back().end == run.begin;
    if (goes_on) {
      slice_adapters_.back().end = run.end;
    } else {
      slice_adapters_.push_back(run);
    }
  }
  return slice_adapters_;
}

std::span<const AdapterRun> Transformer::adapters_of_kept(std::span<const std::int32_t> rows) {
  for (AdapterRun& run : slice_adapters_)
    run = {num_before(rows, run.begin), num_before(rows, run.end), run.adapter};
  std::erase_if(slice_adapters_, [](const AdapterRun& run) { return run.begin == run.end; });
  return slice_adapters_;
}

// Row i of the logits belongs to row logit_rows[i] of the step.
void Transformer::add_to_logits(const StepArrays& arrays, const ProductInput& in, MatrixView logits) {
  const auto& start = arrays.attention.query_start;
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    const auto sequence = std::ranges::upper_bound(start, arrays.logit_rows[as_index(row)]) - start.begin() - 1;
    const Adapter* const adapter = arrays.adapters[as_index(sequence)];
    if (adapter == nullptr || adapter->of_model(WeightRole::kHead).empty()) continue;
    ProductInput one = in;
    one.x = row_range(in.x, row, 1);
    work_.add_low_rank(kHeadLowRank, adapter->of_model(WeightRole::kHead), one, row_range(logits, row, 1));
  }
}

}  // namespace quire
