// Rows with adapters: their changes are added after each product of the model.
#include <algorithm>

#include "core/base/result.h"
#include "core/model/layers/adapter_check.h"
#include "core/model/layers/transformer.h"
#include "core/model/layers/views.h"

namespace quire {

namespace {

std::size_t as_index(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

void Transformer::multiply(const Layer& layer, WeightRole product, const ProductInput& in, MatrixView out,
                           bool accumulate) {
  multiply(layer.weights, product, in, out, accumulate);
  for (const AdapterRun& run : layer.slice.adapters) {
    const auto changes = run.adapter->of_layer(layer.index, product);
    if (changes.empty()) continue;
    ProductInput rows = in;
    rows.x = row_range(in.x, run.begin, run.end - run.begin);
    add_low_rank(kLowRank, changes, rows, row_range(out, run.begin, run.end - run.begin));
  }
}

void Transformer::add_low_rank(Slot slot, std::span<const LowRank> changes, const ProductInput& in, MatrixView out) {
  for (const LowRank& change : changes) {
    const MatrixView low = room(slot, out.rows, change.down->out_features());
    backend_.linear(*change.down, in, low, false);
    backend_.linear(*change.up, low, columns(out, change.first_output, change.up->out_features()), true);
  }
}

// Adds changes to arguments of experts that have `rows_of_each` input rows for each row of the slice. All runs of an
// adapter share a change.
void Transformer::add_expert_changes(const Layer& layer, std::int64_t rows_of_each, ExpertArgs& args) {
  expert_changes_.clear();
  row_changes_.assign(as_index((layer.slice.end - layer.slice.begin) * rows_of_each), -1);
  const auto runs = layer.slice.adapters;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ExpertChange change = runs[i].adapter->of_experts(layer.index);
    if (change.gate_up.empty() && change.down.empty()) continue;
    const auto first = std::ranges::find(runs, runs[i].adapter, &AdapterRun::adapter);
    const auto same = static_cast<std::size_t>(first - runs.begin());
    std::int32_t index = static_cast<std::int32_t>(expert_changes_.size());
    if (same < i) {
      index = row_changes_[as_index(first->begin * rows_of_each)];
    } else {
      expert_changes_.push_back(change);
    }
    std::fill(row_changes_.begin() + runs[i].begin * rows_of_each, row_changes_.begin() + runs[i].end * rows_of_each,
              index);
  }
  if (expert_changes_.empty()) return;
  args.changes = expert_changes_;
  args.row_changes = row_changes_;
  args.low_rank_stride = widths_[kExpertLowRank] / layer.spec.feed_forward.route.num_chosen;
  const std::int64_t num_rows = layer.slice.end - layer.slice.begin;
  args.low_rank = room(kExpertLowRank, num_rows, widths_[kExpertLowRank]).data;
}

// Most experts chosen for a row in any layer.
std::int64_t Transformer::most_chosen() const {
  std::int64_t most = 0;
  for (const LayerSpec& layer : spec_.layers)
    most = std::max(most, layer.feed_forward.route.num_chosen);
  return most;
}

void Transformer::allow_adapters(std::int64_t max_rank) {
  require_adapters(backend_);
  widths_[kLowRank] = max_rank;
  widths_[kHeadLowRank] = max_rank;
  widths_[kExpertLowRank] = most_chosen() * max_rank;
}

std::shared_ptr<const Adapter> Transformer::load_adapter(const std::filesystem::path& path) const {
  if (widths_[kLowRank] == 0) throw StartupError(path.string() + ": adapters were not allowed for");
  return read_adapter(path, spec_, backend_, widths_[kLowRank]);
}

// Runs of the step's sequences [first, end), which are those of the slice.
std::span<const Transformer::AdapterRun> Transformer::adapter_runs(const StepArrays& arrays, std::int64_t first,
                                                                   std::int64_t end) {
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

std::span<const Transformer::AdapterRun> Transformer::adapters_of_kept(std::span<const std::int32_t> rows) {
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
    add_low_rank(kHeadLowRank, adapter->of_model(WeightRole::kHead), one, row_range(logits, row, 1));
  }
}

}  // namespace quire
