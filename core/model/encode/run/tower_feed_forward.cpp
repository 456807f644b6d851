#include "core/model/encode/run/tower_feed_forward.h"

#include "core/model/encode/run/tower_ops.h"
#include "core/model/parts/views.h"

namespace quire {

namespace {

constexpr std::int64_t kSquare = 4;  // patches that the merger makes one row

void feed_forward(TowerOps& ops, const TowerBlock& block, Nonlinearity activation, MatrixView x) {
  const std::int64_t inner = block.down.inputs();
  const std::int64_t wide = outputs_of(block.up);
  const MatrixView normed = ops.room(TowerOps::kNormed, x.rows, x.cols);
  const MatrixView up = ops.room(TowerOps::kWide, x.rows, wide);
  ops.norm(block.ffn_norm, x, normed);
  ops.multiply_all(block.up, normed, up);
  const MatrixView activated = ops.room(TowerOps::kActivated, x.rows, inner);
  const bool is_gated = wide == 2 * inner;
  ops.activate(activation, columns(up, 0, inner), is_gated ? columns(up, inner, inner) : MatrixView{}, activated);
  ops.add_product(block.down, block.ffn_post_norm, block.ffn_scale.get(), activated, x);
}

// out = mlp(norm(square)) + mean(square), for squares of neighbouring patches. `out` may begin where `patches` do.
void merge_squares(TowerOps& ops, const VitMergerWeights& merger, MatrixView patches, MatrixView out) {
  const MatrixView squares{patches.data, out.rows, kSquare * patches.cols, kSquare * patches.cols};
  const MatrixView normed = ops.room(TowerOps::kNormed, squares.rows, squares.cols);
  const MatrixView up = ops.room(TowerOps::kWide, squares.rows, merger.up.outputs());
  const MatrixView made = ops.room(TowerOps::kOut, squares.rows, patches.cols);
  ops.norm(merger.norm, squares, normed);
  ops.multiply(merger.up, normed, up);
  ops.activate(Nonlinearity::kGelu, up, {}, up);
  ops.multiply(merger.down, up, made);
  const MatrixView mean = ops.room(TowerOps::kStepA, squares.rows, patches.cols);
  ops.mean(kSquare, patches, mean);
  ops.backend().graph()->add(mean, 1.0F, made);
  ops.backend().graph()->copy(made, out);
}

}  // namespace

void add_feed_forward(const TowerBlock& block, const TileRows& rows, RowStages& stages) {
  stages.add(rows.count, (outputs_of(block.up) + block.down.inputs()) * rows.spec.width,
             [&block, &rows](TowerOps& ops, std::int64_t begin, std::int64_t end) {
               feed_forward(ops, block, rows.spec.activation, rows.at(begin, end));
             });
}

void add_vit_merger(const VitMergerWeights& merger, TowerAttention& attention, TileRows& rows, RowStages& stages) {
  std::vector<std::int64_t> squares;
  for (std::int64_t row = 0; row <= rows.count; row += kSquare)
    squares.push_back(row);
  attention.add_block(merger.attention, squares, stages);
  rows.count /= kSquare;
  const std::int64_t work = merger.up.inputs() * merger.up.outputs() + merger.down.inputs() * merger.down.outputs();
  stages.add(rows.count, work, [&merger, &rows](TowerOps& ops, std::int64_t begin, std::int64_t end) {
    merge_squares(ops, merger, rows.at(kSquare * begin, kSquare * end), rows.at(begin, end));
  });
}

}  // namespace quire
