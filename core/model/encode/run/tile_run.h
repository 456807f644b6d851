// TileRun: one tile of a picture through the tower, in the order of the tower's stages. Engine thread.
// Invariant: construction computes and allocates nothing that grows with the tile's activations.
#pragma once

#include <optional>

#include "core/model/encode/run/patch_embedding.h"
#include "core/model/encode/run/resampler.h"
#include "core/model/encode/run/tower_attention.h"
#include "core/model/encode/run/tower_outputs.h"

namespace quire {

class TileRun {
 public:
  // picture_rows: [rows of the picture][spec.row_width()]; may be empty where only work_left() is asked. All arguments
  // outlive the run.
  TileRun(const TowerWeights& weights, const Picture& pixels, const PictureTile& tile, std::span<float> picture_rows);
  TileRun(const TileRun&) = delete;  // its stages refer to its parts
  TileRun& operator=(const TileRun&) = delete;

  // Before the first piece.
  void allocate(Backend& backend);
  std::int64_t work_left() const { return stages_.work_left(); }  // multiply-adds
  // Calls RowStages::compute_piece().
  std::int64_t compute_piece(std::int64_t work, TowerOps& ops) { return stages_.compute_piece(work, ops); }

 private:
  void add_block(const TowerBlock& block, std::int64_t index);

  const TowerWeights& weights_;
  TileRows rows_;
  PatchEmbedding embedding_;
  TowerAttention attention_;
  TowerOutputs outputs_;
  std::optional<Resampler> resampler_;
  RowStages stages_;
};

}  // namespace quire
