#include "core/model/encode/run/tower_outputs.h"

#include <algorithm>
#include <cstring>

#include "core/model/encode/run/tower_ops.h"
#include "core/model/parts/views.h"

namespace quire {

TowerOutputs::TowerOutputs(const TowerWeights& weights, const TileRows& rows, const PictureTile& tile,
                           std::span<float> picture_rows)
    : weights_(weights), rows_(rows), tile_(tile), picture_rows_(picture_rows) {}

void TowerOutputs::allocate(Backend& backend) {
  const auto num_kept = std::ssize(weights_.spec.kept_before);
  if (num_kept > 0) kept_ = backend.allocate(rows_.grid.size() * weights_.spec.width * num_kept);
}

MatrixView TowerOutputs::kept(std::int64_t begin, std::int64_t end) const {
  const std::int64_t cols = weights_.spec.width * std::ssize(weights_.spec.kept_before);
  return {kept_->data() + begin * cols, end - begin, cols, cols};
}

void TowerOutputs::add_kept(std::int64_t block, RowStages& stages) {
  const std::vector<std::int64_t>& blocks = weights_.spec.kept_before;
  const auto found = std::ranges::find(blocks, block);
  if (found == blocks.end()) return;
  const std::int64_t width = weights_.spec.width;
  const std::int64_t column = (found - blocks.begin()) * width;
  stages.add(rows_.grid.size(), width, [this, column, width](TowerOps& ops, std::int64_t begin, std::int64_t end) {
    ops.backend().graph()->copy(rows_.at(begin, end), columns(kept(begin, end), column, width));
  });
}

void TowerOutputs::add_branches(std::int64_t block, RowStages& stages) {
  const TowerSpec& spec = weights_.spec;
  for (std::size_t i = 0; i < spec.branches.size(); ++i) {
    if (spec.branches[i].after_block != block) continue;
    const TowerSteps& steps = weights_.branches[i];
    const std::int64_t merged = merged_rows(steps);
    const std::int64_t first_column = static_cast<std::int64_t>(i + 1) * spec.text_width;
    stages.add(
        rows_.grid.size() / merged, work_of(steps),
        [this, &steps, merged, first_column](TowerOps& ops, std::int64_t begin, std::int64_t end) {
          put(ops, begin, first_column, ops.run_steps(steps, rows_.at(begin * merged, end * merged)));
        },
        RowStages::kCostlyUnit);
  }
}

void TowerOutputs::add_projector(RowStages& stages) {
  const TowerSpec& spec = weights_.spec;
  const std::int64_t merged = merged_rows(weights_.projector);
  const std::int64_t patches = rows_.count - (spec.class_token == ClassToken::kNone ? 0 : 1);
  stages.add(
      patches / merged, work_of(weights_.projector),
      [this, merged, first = spec.skipped_rows](TowerOps& ops, std::int64_t begin, std::int64_t end) {
        const MatrixView last = last_rows(ops, first + begin * merged, first + end * merged);
        put(ops, begin, 0, ops.run_steps(weights_.projector, last));
      },
      RowStages::kCostlyUnit);
}

MatrixView TowerOutputs::last_rows(TowerOps& ops, std::int64_t begin, std::int64_t end) const {
  const MatrixView last = ops.run_steps(weights_.last_norm, rows_.at(begin, end));
  if (kept_ == nullptr) return last;
  const MatrixView before = kept(begin, end);
  const MatrixView all = ops.room(TowerOps::kInput, end - begin, before.cols + last.cols);
  ops.backend().graph()->copy(before, columns(all, 0, before.cols));
  ops.backend().graph()->copy(last, columns(all, before.cols, last.cols));
  return all;
}

void TowerOutputs::put(TowerOps& ops, std::int64_t first_row, std::int64_t first_column, MatrixView rows) const {
  rows = ops.on_host(rows);
  const std::int64_t width = weights_.spec.row_width();
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    std::int64_t place = first_row + i;
    if (weights_.spec.num_queries == 0) place = rows_.grid.cell_rows[static_cast<std::size_t>(place)];
    if (!tile_.places.empty()) place = tile_.places[static_cast<std::size_t>(place)];
    if (place < 0) continue;
    std::memcpy(picture_rows_.data() + (tile_.first_row + place) * width + first_column, rows.data + i * rows.stride,
                static_cast<std::size_t>(rows.cols) * sizeof(float));
  }
}

}  // namespace quire
