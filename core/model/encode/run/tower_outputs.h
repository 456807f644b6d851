// TowerOutputs: the way of a tile's rows out of the tower: kept inputs of blocks, branches and the projector, whose
// rows go to their places among the picture's. Engine thread; memory is there from allocate() on.
#pragma once

#include <memory>
#include <span>

#include "core/model/encode/picture_plan.h"
#include "core/model/encode/run/row_stages.h"
#include "core/model/encode/run/tile_rows.h"
#include "core/model/encode/towers/tower_weights.h"

namespace quire {

class TowerOutputs {
 public:
  // picture_rows: [rows of the picture][spec.row_width()]. All arguments outlive the outputs.
  TowerOutputs(const TowerWeights& weights, const TileRows& rows, const PictureTile& tile,
               std::span<float> picture_rows);

  // Keeps the input of the block for the projector, where the tower does so.
  void add_kept(std::int64_t block, RowStages& stages);
  // The branches after the block.
  void add_branches(std::int64_t block, RowStages& stages);
  void add_projector(RowStages& stages);
  void allocate(Backend& backend);

  // Rows behind the last block, normed, with the kept ones before them.
  MatrixView last_rows(TowerOps& ops, std::int64_t begin, std::int64_t end) const;
  // Rows from first_row on, in the tower's order, into columns of the picture's rows.
  void put(TowerOps& ops, std::int64_t first_row, std::int64_t first_column, MatrixView rows) const;

 private:
  MatrixView kept(std::int64_t begin, std::int64_t end) const;

  const TowerWeights& weights_;
  const TileRows& rows_;
  const PictureTile& tile_;
  std::span<float> picture_rows_;
  std::unique_ptr<Buffer> kept_;
};

}  // namespace quire
