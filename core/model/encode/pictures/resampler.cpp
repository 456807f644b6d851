// The resampler of MiniCPM-V 2.6 to 4.5: learned queries that look at all patches once (arXiv 2308.12966, section 3).
#include <algorithm>
#include <cmath>

#include "core/model/encode/tower_run.h"
#include "core/model/parts/views.h"

namespace quire {

void TowerRun::add_resampler(const ResamplerWeights& resampler) {
  const std::int64_t width = resampler.width;
  const std::int64_t waves = width / 2;
  const std::int64_t places = std::max(grid_.rows, grid_.columns);
  const RowAttention& rows = attention_in({0, num_rows_});
  add_stage(places, 16 * waves, [this, waves, places](std::int64_t begin, std::int64_t end) {
    axis_waves_.resize(static_cast<std::size_t>(places * waves));
    const std::int64_t half = waves / 2;
    for (std::int64_t place = begin; place < end; ++place) {
      float* const to = axis_waves_.data() + place * waves;
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(place) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        to[i] = static_cast<float>(std::sin(angle));
        to[half + i] = static_cast<float>(std::cos(angle));
      }
    }
  });
  add_stage(num_rows_, width * (spec().width + 2 * width),
            [this, &resampler, &rows](std::int64_t begin, std::int64_t end) {
              store_for_queries(resampler, rows, begin, end);
            });
  add_stage(
      spec().num_queries, width * (2 * width + 2 * num_rows_) + work_of(weights_->projector),
      [this, &resampler, &rows](std::int64_t begin, std::int64_t end) { answer_queries(resampler, rows, begin, end); });
}

// Keys have the patch's place added: waves of its column, then of its row.
void TowerRun::store_for_queries(const ResamplerWeights& resampler, const RowAttention& rows, std::int64_t begin,
                                 std::int64_t end) {
  const std::int64_t width = resampler.width;
  const std::int64_t waves = width / 2;
  const MatrixView both = ops_->room(TowerOps::kWide, end - begin, 2 * width);
  const MatrixView keys = columns(both, 0, width);
  const MatrixView values = columns(both, width, width);
  ops_->multiply(resampler.kv, last_rows(begin, end), values);
  ops_->norm(resampler.kv_norm, values, values);
  ops_->for_rows(end - begin, width, [&](std::int64_t row) {
    const PatchGrid::Place place = grid_.places[static_cast<std::size_t>(begin + row)];
    const float* const from = values.data + row * values.stride;
    float* const to = keys.data + row * keys.stride;
    for (std::int64_t i = 0; i < waves; ++i) {
      to[i] = from[i] + axis_waves_[static_cast<std::size_t>(place.column * waves + i)];
      to[waves + i] = from[waves + i] + axis_waves_[static_cast<std::size_t>(place.row * waves + i)];
    }
  });
  const MatrixView projected = ops_->room(TowerOps::kProjected, end - begin, 2 * width);
  const MatrixView k = columns(projected, 0, width);
  const MatrixView v = columns(projected, width, width);
  ops_->multiply(resampler.key, keys, k);
  ops_->multiply(resampler.value, values, v);
  rows.store(ops_->backend(), *across_keys_, begin, k, v);
}

void TowerRun::answer_queries(const ResamplerWeights& resampler, const RowAttention& rows, std::int64_t begin,
                              std::int64_t end) {
  const std::int64_t width = resampler.width;
  const MatrixView queries = ops_->room(TowerOps::kInput, end - begin, width);
  std::copy_n(resampler.queries.data() + begin * width, queries.rows * width, queries.data);
  ops_->norm(resampler.query_norm, queries, queries);
  const MatrixView q = ops_->room(TowerOps::kProjected, queries.rows, width);
  ops_->multiply(resampler.query, queries, q);
  const MatrixView seen = ops_->room(TowerOps::kNormed, queries.rows, width);
  const float scale = 1.0F / std::sqrt(static_cast<float>(width / resampler.num_heads));
  rows.run_across(ops_->backend(), *across_keys_, resampler.num_heads, scale, q, seen);
  const MatrixView out = ops_->room(TowerOps::kOut, queries.rows, width);
  ops_->multiply(resampler.out, seen, out);
  put_out(begin, 0, ops_->run_steps(weights_->projector, out));
}

}  // namespace quire
