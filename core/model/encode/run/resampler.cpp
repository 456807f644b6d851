#include "core/model/encode/run/resampler.h"

#include <algorithm>
#include <cmath>

#include "core/model/encode/run/tower_ops.h"
#include "core/model/parts/views.h"

namespace quire {

namespace {

constexpr std::int64_t kBlockSize = 64;

}  // namespace

Resampler::Resampler(const TowerWeights& weights, const TileRows& rows, const TowerOutputs& outputs)
    : weights_(*weights.resampler),
      projector_(weights.projector),
      rows_(rows),
      outputs_(outputs),
      attention_({0, rows.count}, kBlockSize) {}

void Resampler::add_stages(RowStages& stages) {
  const std::int64_t width = weights_.width;
  stages.add(std::max(rows_.grid.rows, rows_.grid.columns), 8 * width,
             [this](TowerOps&, std::int64_t begin, std::int64_t end) { fill_waves(begin, end); });
  stages.add(rows_.count, width * (rows_.spec.width + 2 * width),
             [this](TowerOps& ops, std::int64_t begin, std::int64_t end) { store_keys(ops, begin, end); });
  stages.add(rows_.spec.num_queries, width * (2 * width + 2 * rows_.count) + work_of(projector_),
             [this](TowerOps& ops, std::int64_t begin, std::int64_t end) { answer_queries(ops, begin, end); });
}

void Resampler::allocate(Backend& backend) {
  waves_.resize(static_cast<std::size_t>(std::max(rows_.grid.rows, rows_.grid.columns) * (weights_.width / 2)));
  keys_ = allocate_rows(backend, attention_.num_blocks(), kBlockSize, weights_.num_heads,
                        weights_.width / weights_.num_heads);
}

void Resampler::fill_waves(std::int64_t begin, std::int64_t end) {
  const std::int64_t waves = weights_.width / 2;
  const std::int64_t half = waves / 2;
  for (std::int64_t place = begin; place < end; ++place) {
    float* const to = waves_.data() + place * waves;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(place) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      to[i] = static_cast<float>(std::sin(angle));
      to[half + i] = static_cast<float>(std::cos(angle));
    }
  }
}

// Keys have the patch's place added: waves of its column, then of its row.
void Resampler::store_keys(TowerOps& ops, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = weights_.width;
  const std::int64_t waves = width / 2;
  const MatrixView both = ops.room(TowerOps::kWide, end - begin, 2 * width);
  const MatrixView keys = columns(both, 0, width);
  const MatrixView values = columns(both, width, width);
  ops.multiply(weights_.kv, outputs_.last_rows(ops, begin, end), values);
  ops.norm(weights_.kv_norm, values, values);
  const std::span<float> places = ops.host_values((end - begin) * width);
  ops.for_rows(end - begin, width, [&](std::int64_t row) {
    const PatchGrid::Place place = rows_.grid.places[static_cast<std::size_t>(begin + row)];
    float* const to = places.data() + row * width;
    std::copy_n(waves_.data() + place.column * waves, waves, to);
    std::copy_n(waves_.data() + place.row * waves, waves, to + waves);
  });
  ops.put(places, keys);
  ops.backend().graph()->add(values, 1.0F, keys);
  const MatrixView projected = ops.room(TowerOps::kProjected, end - begin, 2 * width);
  const MatrixView k = columns(projected, 0, width);
  const MatrixView v = columns(projected, width, width);
  ops.multiply(weights_.key, keys, k);
  ops.multiply(weights_.value, values, v);
  attention_.store(ops.backend(), *keys_, begin, k, v);
}

void Resampler::answer_queries(TowerOps& ops, std::int64_t begin, std::int64_t end) const {
  const std::int64_t width = weights_.width;
  const MatrixView queries = ops.room(TowerOps::kInput, end - begin, width);
  ops.put(std::span(weights_.queries).subspan(static_cast<std::size_t>(begin * width)), queries);
  ops.norm(weights_.query_norm, queries, queries);
  const MatrixView q = ops.room(TowerOps::kProjected, queries.rows, width);
  ops.multiply(weights_.query, queries, q);
  const MatrixView seen = ops.room(TowerOps::kNormed, queries.rows, width);
  const float scale = 1.0F / std::sqrt(static_cast<float>(width / weights_.num_heads));
  attention_.run_across(ops.backend(), *keys_, weights_.num_heads, scale, q, seen);
  const MatrixView out = ops.room(TowerOps::kOut, queries.rows, width);
  ops.multiply(weights_.out, seen, out);
  outputs_.put(ops, begin, 0, ops.run_steps(projector_, out));
}

}  // namespace quire
