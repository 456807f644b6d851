#include "core/model/encode/run/row_stages.h"

#include <algorithm>

#include "core/model/encode/run/tower_ops.h"
#include "kernels/check.h"

namespace quire {

void RowStages::add(std::int64_t num_rows, std::int64_t row_work, Compute compute, std::int64_t unit) {
  if (num_rows <= 0) return;
  row_work = std::max<std::int64_t>(row_work, 1);
  work_left_ += num_rows * row_work;
  stages_.push_back({num_rows, row_work, unit, std::move(compute)});
}

std::int64_t RowStages::compute_piece(std::int64_t work, TowerOps& ops) {
  QUIRE_CHECK(stage_ < stages_.size(), "a piece of stages that are complete");
  const Stage& stage = stages_[stage_];
  const std::int64_t wanted = work / stage.row_work / stage.unit * stage.unit;
  const std::int64_t end = std::min(stage.num_rows, row_ + std::clamp(wanted, stage.unit, ops.most_rows()));
  stage.compute(ops, row_, end);
  const std::int64_t done = (end - row_) * stage.row_work;
  work_left_ -= done;
  row_ = end;
  if (row_ == stage.num_rows) {
    row_ = 0;
    ++stage_;
  }
  return done;
}

}  // namespace quire
