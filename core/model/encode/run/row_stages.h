// RowStages: a computation as stages over rows, cut into pieces anywhere, and its progress. Engine thread.
// Invariant: a stage begins after all rows of the stage before it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace quire {

class TowerOps;

class RowStages {
 public:
  // Computes rows [begin, end) of its stage.
  using Compute = std::function<void(TowerOps& ops, std::int64_t begin, std::int64_t end)>;
  static constexpr std::int64_t kUnit = 32;       // least rows computed at once: fewer waste the products' tiles
  static constexpr std::int64_t kCostlyUnit = 8;  // for rows that cost much each

  // row_work: multiply-adds of a row. A stage without rows is left out.
  void add(std::int64_t num_rows, std::int64_t row_work, Compute compute, std::int64_t unit = kUnit);
  std::int64_t work_left() const { return work_left_; }  // multiply-adds

  // Computes the next rows of the current stage: about `work` multiply-adds, one unit at least. Returns those done.
  // Requires work_left() > 0.
  std::int64_t compute_piece(std::int64_t work, TowerOps& ops);

 private:
  struct Stage {
    std::int64_t num_rows = 0;
    std::int64_t row_work = 0;
    std::int64_t unit = 1;
    Compute compute;
  };

  std::vector<Stage> stages_;
  std::int64_t work_left_ = 0;
  std::size_t stage_ = 0;
  std::int64_t row_ = 0;  // first row of the stage that is not computed
};

}  // namespace quire
