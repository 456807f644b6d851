// PatchEmbedding: the first rows of a tile: normalised pixels of each patch through the patch product, learned
// positions, and the class token. Engine thread.
#pragma once

#include "core/content/picture.h"
#include "core/model/encode/run/row_stages.h"
#include "core/model/encode/run/tile_rows.h"
#include "core/model/encode/towers/tower_weights.h"

namespace quire {

class PatchEmbedding {
 public:
  // All arguments outlive the embedding.
  PatchEmbedding(const TowerWeights& weights, const Picture& pixels, const TileRows& rows);
  void add_stages(RowStages& stages) const;

 private:
  void embed(TowerOps& ops, std::int64_t begin, std::int64_t end) const;
  void put_pixels(TowerOps& ops, std::int64_t first_patch, MatrixView out) const;
  void add_positions(TowerOps& ops, std::int64_t first_patch, MatrixView out) const;
  void put_class_row(TowerOps& ops) const;

  const TowerWeights& weights_;
  const Picture& pixels_;
  const TileRows& rows_;
  GridPositions positions_;
};

}  // namespace quire
