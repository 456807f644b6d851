// TileRows: one tile in the tower: the grid of its patches and the rows of the residual stream. Engine thread.
// Invariant: sizes are known from construction on, memory is there from allocate() on.
#pragma once

#include <cstdint>
#include <memory>

#include "core/model/encode/patch_grid.h"
#include "kernels/backend.h"

namespace quire {

struct TileRows {
  TileRows(const TowerSpec& tower, PictureSize pixels)
      : spec(tower),
        grid(make_patch_grid(tower, pixels)),
        most(grid.size() + (tower.class_token == ClassToken::kNone ? 0 : 1)),
        count(most) {}

  void allocate(Backend& backend) { stream = backend.allocate(most * spec.width); }
  MatrixView at(std::int64_t begin, std::int64_t end) const {
    return {stream->data() + begin * spec.width, end - begin, spec.width, spec.width};
  }

  const TowerSpec& spec;
  PatchGrid grid;
  std::int64_t most;   // patches, and the class token behind them
  std::int64_t count;  // rows of the stages that are added next: fewer behind a merger
  std::unique_ptr<Buffer> stream;
};

}  // namespace quire
