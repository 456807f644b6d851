// The merger within MiniCPM-V 4.6's tower: attention in squares of four patches, which then become one row.
#include "core/model/encode/tower_run.h"

namespace quire {

namespace {

constexpr std::int64_t kSquare = 4;

}  // namespace

void TowerRun::add_vit_merger(const VitMergerWeights& merger) {
  std::vector<std::int64_t> squares;
  for (std::int64_t row = 0; row <= num_rows_; row += kSquare)
    squares.push_back(row);
  add_attention(merger.attention, squares);
  num_rows_ /= kSquare;
  const std::int64_t work = merger.up.inputs() * merger.up.outputs() + merger.down.inputs() * merger.down.outputs();
  add_stage(num_rows_, work,
            [this, &merger](std::int64_t begin, std::int64_t end) { merge_squares(merger, begin, end); });
}

// x = mlp(norm(square)) + mean(square). Rows are written no further than they have been read.
void TowerRun::merge_squares(const VitMergerWeights& merger, std::int64_t begin, std::int64_t end) {
  const MatrixView patches = x(kSquare * begin, kSquare * end);
  const MatrixView squares{patches.data, end - begin, kSquare * patches.cols, kSquare * patches.cols};
  const MatrixView normed = ops_->room(TowerOps::kNormed, squares.rows, squares.cols);
  const MatrixView up = ops_->room(TowerOps::kWide, squares.rows, merger.up.outputs());
  const MatrixView made = ops_->room(TowerOps::kOut, squares.rows, patches.cols);
  ops_->norm(merger.norm, squares, normed);
  ops_->multiply(merger.up, normed, up);
  ops_->activate(Nonlinearity::kGelu, up, {}, up);
  ops_->multiply(merger.down, up, made);
  const MatrixView mean = ops_->room(TowerOps::kStepA, squares.rows, patches.cols);
  ops_->mean(kSquare, patches, mean);
  ops_->backend().graph()->add(mean, 1.0F, made);
  ops_->backend().graph()->copy(made, x(begin, end));
}

}  // namespace quire
